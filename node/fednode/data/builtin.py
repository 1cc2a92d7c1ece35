"""Find the images that ship with fednode, and verify them.

They are a part of Caltech 101; assets/README.md lists the part, its selection rule and its licence.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fednode.data.images import Verdict
from fednode.errors import DataError

ASSETS: Final = Path(__file__).resolve().parent / "assets"
FOLDER: Final = "caltech101"
MANIFEST: Final = "SHA256SUMS"


def root(assets: Path = ASSETS) -> Path:
    """Return the folder of class folders; raise DataError if it was not installed."""
    folder = assets / FOLDER
    if not folder.is_dir() or not (assets / MANIFEST).is_file():
        raise DataError(
            f"The built-in images are missing from '{assets}': install fednode again, or set "
            "data.path to a folder of your own images."
        )
    return folder


def sums(assets: Path = ASSETS) -> dict[Path, str]:
    """Return the SHA-256 of every built-in image, as listed in the manifest."""
    lines = (assets / MANIFEST).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("  ", 1) for line in lines if line)
    return {assets / name: digest for digest, name in pairs}


def examine(paths: Iterable[Path], assets: Path = ASSETS) -> dict[Path, Verdict]:
    """Return a verdict on each built-in image: whether it is the one that shipped."""
    known, verdicts = sums(assets), dict[Path, Verdict]()
    for path in paths:
        shipped = False
        with contextlib.suppress(OSError):
            shipped = hashlib.sha256(path.read_bytes()).hexdigest() == known.get(path)
        fault = "differs from the built-in image that shipped: install fednode again"
        verdicts[path] = Verdict(None if shipped else fault, digest=known.get(path, ""))
    return verdicts
