"""Write a file whole or not at all, or say in one sentence why it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

from node.errors import StateError


def put(path: Path, text: str, another: str, secret: bool = False) -> None:
    """Write a file aside and rename it; another: what to choose where this place will not do.

    secret: its owner alone reads it.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        aside.touch(0o600 if secret else 0o666)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as fault:
        raise StateError(
            f"{path} cannot be written: {fault.strerror}; free space there or choose another "
            f"{another}."
        ) from fault
