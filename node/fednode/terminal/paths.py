"""The type of options and arguments that are paths, and the settings of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

PATH: Final = click.Path(readable=False, path_type=Path)
"""A path as pathlib.Path, checked by the command; a shell completes it, unlike `type=Path`."""

CONFIG: Final = Path("node.yaml")
PEERS: Final = Path("peers.yaml")


def settings_here(named: Path | None) -> Path | None:
    """Return the settings that a command was given, or ./node.yaml if there is one."""
    return named or (CONFIG if CONFIG.is_file() else None)
