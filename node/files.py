"""Write a file whole or not at all, or say in one sentence why it cannot be."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from node.errors import StateError
from node.runtime.disk import Disk


def put(
    path: Path, text: str, another: str, secret: bool = False, disk: Disk | None = None
) -> None:
    """Write a file aside, sync it, rename it and sync its folder.

    After a power loss the file holds the old text or the new text, never a part of one.
    another: what to choose where this place will not do. secret: its owner alone reads it.
    """
    suffix = f".{os.getpid()}"
    aside = path.with_name(path.name + suffix)
    try:
        aside.touch(0o600 if secret else 0o666)
        (disk or Disk()).replace(path, text.encode("utf-8"), suffix)
    except OSError as fault:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise StateError(
            f"{path} cannot be written: {fault.strerror}; free space there or choose another "
            f"{another}."
        ) from fault
