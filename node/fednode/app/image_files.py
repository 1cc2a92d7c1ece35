"""Image files given to a command: files, folders, and paths on standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fednode.data.decode import is_image
from fednode.data.folder import is_litter
from fednode.errors import DataError


def image_files(given: Iterable[Path], there: bool = True) -> Iterator[Path]:
    """Yield image files; of a folder, in order, without what operating systems leave there.

    there: raise DataError if a path does not exist; else yield it.
    """
    for path in given:
        if str(path) == "-":
            lines = sys.stdin.read().removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines()
            yield from image_files((Path(line) for line in lines if line.strip()), there)
        elif path.is_dir():
            yield from sorted(file for file in path.rglob("*") if _is_meant(file, path))
        elif path.is_file() or not there:
            yield path
        else:
            raise DataError(f"There is no image file {path}: give the path of an image or folder.")


def _is_meant(file: Path, folder: Path) -> bool:
    litter = any(map(is_litter, file.relative_to(folder).parts))
    return not litter and file.is_file() and is_image(file)
