"""Write a file completely or not at all; read a file. StateError says why that failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fednode.errors import StateError
from fednode.storage.disk import FILE_MODE, Disk, explained

EARLIER: Final = ("journal.db", "identity/lease", "admission")
"""Files of a state directory by versions before checkpoints and certificates."""


def put(
    path: Path, content: str | bytes, another: str, for_all: bool = False, disk: Disk | None = None
) -> None:
    """Write a file. After a power loss it holds the old or the new content, no part of either.

    another: what to choose if this place does not work, for the error. for_all: the process's umask
    says who may read the file; without it only the owner may. Raise StateError if the file cannot
    be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    advice = f"; free space there or choose another {another}."
    with explained(f"{path} cannot be written", advice):
        (disk or Disk()).replace(path, data, 0o666 if for_all else FILE_MODE)


def content_of(path: Path) -> bytes:
    """Return the bytes of a file.

    Raise StateError if the system does not give them. That says nothing about the content: with
    free descriptors, or once the disk answers, the same file may be sound.
    """
    with explained(f"{path} cannot be read", ". Try again when it can; it was not changed."):
        return path.read_bytes()


def text_of(path: Path) -> str:
    """Return the text of a small file, without spaces around it; raise StateError."""
    try:
        return content_of(path).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise StateError(
            f"{path} is not UTF-8 text: restore it from a backup, or delete it."
        ) from None


def content_if_any(path: Path) -> bytes | None:
    """Return the bytes of a file; None if there is no such file. Raise as `content_of`."""
    try:
        return content_of(path)
    except StateError as fault:
        if isinstance(fault.__cause__, FileNotFoundError):
            return None
        raise


def earlier_files(state: Path) -> list[str]:
    """Return the files of EARLIER in a state directory."""
    return [name for name in EARLIER if os.path.exists(state / name)]


def refuse_earlier(state: Path) -> None:
    """Raise StateError if an earlier version of fednode wrote a state directory."""
    if earlier := earlier_files(state):
        raise StateError(
            f"{state} is a state directory of an earlier version of fednode (it holds "
            f"{', '.join(earlier)}), which this version cannot read; nothing in it was changed. "
            "Rename this folder, then begin anew: in a mesh with keys the founder with `fednode "
            "init MESH`, and every other site with a new link and `fednode join LINK`."
        )
