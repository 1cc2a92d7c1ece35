"""The sockets between TLS and gRPC: a private folder, made at the first use.

Whoever may use such a socket speaks to gRPC without TLS, so they lie in a folder of this user
alone. Cleaners of temporary files may empty it while the node runs; `lost` tells.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from fednode.errors import AddressError

PATH_BYTES_MAX: Final = 107
"""The longest path of a socket; the system's limit."""
_NAME_BYTES: Final = 36
"""Most bytes that a socket adds to the path of the folder for temporary files."""
PLAIN: Final = "/tmp"
"""Where the folder is made if the path of TMPDIR is too long, or nothing can be made there."""


class Sockets:
    """The folder, and the sockets in it on which this process listens."""

    def __init__(self) -> None:
        """Set up; nothing is made yet."""
        self._folder: Path | None = None
        self._made = 0, 0, 0
        self._listening: dict[str, str] = {}  # paths by name

    def path(self, name: str) -> str:
        """Return the path of a socket; raise AddressError if there is no place for one."""
        if self._folder is None:
            self._folder = _new_folder()
            self._made = _stamp(self._folder)
        return str(self._folder / name)

    def listening(self, name: str) -> str:
        """Return the path of a socket that others connect to, until `drop`."""
        self._listening[name] = self.path(name)
        return self._listening[name]

    def drop(self, name: str) -> None:
        """Forget a socket, and remove it."""
        with contextlib.suppress(OSError):
            os.unlink(self._listening.pop(name))

    def lost(self) -> bool:
        """Tell whether somebody removed the folder or a socket in it."""
        if self._folder is None:
            return bool(self._listening)
        try:
            return _stamp(self._folder) != self._made or not all(
                map(os.path.exists, self._listening.values())
            )
        except OSError:
            return True

    def leave(self) -> None:
        """Remove the folder; the next use makes another one. Idempotent."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _stamp(folder: Path) -> tuple[int, int, int]:
    """Return what tells a folder from another one, perhaps of another user, in its place."""
    found = folder.lstat()
    return found.st_dev, found.st_ino, found.st_uid


def _new_folder() -> Path:
    faults = dict[str, str]()
    try:
        usual = tempfile.gettempdir()
    except OSError:  # nothing can be written in any of the usual folders
        usual = PLAIN
    for place in (usual, PLAIN):
        if len(os.fsencode(place)) + _NAME_BYTES > PATH_BYTES_MAX:
            faults[place] = "its path is too long for sockets"
            continue
        try:
            return Path(tempfile.mkdtemp(prefix="fednode-", dir=place))
        except OSError as fault:
            faults[place] = fault.strerror or str(fault)
    said = "; ".join(f"{place}: {fault}" for place, fault in faults.items())
    raise AddressError(
        f"there is no place for this node's sockets ({said}): set TMPDIR to a folder that this "
        f"user can write, with a path of at most {PATH_BYTES_MAX - _NAME_BYTES} bytes"
    )
