"""Image files given to a command: files, folders, and paths on standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fednode.data.decode import is_image
from fednode.errors import DataError


def image_files(given: Iterable[Path]) -> Iterator[Path]:
    """Yield image files; of a folder, in order. Raise DataError if a path does not exist."""
    for path in given:
        if str(path) == "-":
            lines = sys.stdin.read().splitlines()
            yield from image_files(Path(line) for line in lines if line.strip())
        elif path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.is_file() and is_image(file))
        elif path.is_file():
            yield path
        else:
            raise DataError(f"There is no image file {path}: give the path of an image or folder.")
