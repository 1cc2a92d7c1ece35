"""Open the files of a data folder, in which other programs may put anything.

Only regular files and links to them are opened: a FIFO would keep its reader waiting, and a device
has no end.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import Final

from fednode.data.pixels import Unusable

LIST_MAX: Final = 32 << 20
"""Bytes of a text file that lists images."""
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


DESCRIPTORS: Final = (
    "too many files are open: raise the limit (ulimit -n, LimitNOFILE) and start again"
)


def why(fault: OSError) -> str:
    """Return in words why the system does not give a file."""
    if fault.errno in {errno.EMFILE, errno.ENFILE}:
        return DESCRIPTORS
    return fault.strerror or str(fault)


def system_fault(fault: BaseException | None) -> OSError | MemoryError | None:
    """Return the fault of the system behind another one; None if there is none.

    Decoders hide errors of the system in their own.
    """
    while fault is not None:
        if isinstance(fault, MemoryError) or (isinstance(fault, OSError) and fault.errno):
            return fault
        fault = fault.__cause__ or fault.__context__
    return None


def require_regular(status: os.stat_result) -> None:
    """Raise Unusable if a status is not that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise Unusable("not a regular file, but a folder, a device, a FIFO or a socket")


def opened(path: Path) -> io.BufferedReader:
    """Open a regular file to read its bytes, without waiting for anything.

    Raise Unusable if the path is something else, and OSError if it cannot be opened.
    """
    require_regular(os.stat(path))
    descriptor = os.open(path, _FLAGS)
    try:
        require_regular(os.fstat(descriptor))  # the path may have been replaced meanwhile
        return io.BufferedReader(io.FileIO(descriptor, "rb"))
    except BaseException:
        os.close(descriptor)
        raise


def read_list(path: Path) -> str:
    """Return a text file of at most LIST_MAX bytes in UTF-8, with or without a byte order mark.

    Raise ValueError or OSError if it is not.
    """
    with opened(path) as file:
        content = file.read(LIST_MAX + 1)
    if len(content) > LIST_MAX:
        raise ValueError(f"it has more than {LIST_MAX >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        raise ValueError(f"line {line} is not UTF-8 text: save it as UTF-8") from None
    if "\0" in text:  # as UTF-16 without its mark reads
        raise ValueError("it is no text in UTF-8: save it as UTF-8")
    return text


def is_utf8(name: str) -> bool:
    """Tell whether the system's bytes of a name are UTF-8; other names cannot be written."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def spelled(path: Path) -> Path:
    r"""Return a path that can be written: bytes that are not UTF-8 become text such as \xff."""
    return Path(os.fsencode(path).decode("utf-8", "backslashreplace"))
