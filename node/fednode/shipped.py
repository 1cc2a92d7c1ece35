"""Find the files of configs/ that the wheel carries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parent


def config_file(name: str) -> Path:
    """Return the path of a file of configs/: installed below the package, or in the checkout."""
    installed = PACKAGE / "configs"
    return (installed if installed.is_dir() else PACKAGE.parents[1] / "configs") / name
