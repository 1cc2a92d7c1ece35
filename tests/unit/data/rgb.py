"""Decoded images that outlive the block of `decode`."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from fednode.data.decode import decode
from fednode.data.pixels import Window


def read_rgb(path: Path, window: Window = None) -> Image.Image:
    """Return a copy of the RGB image of `decode`."""
    with decode(path, window) as decoded:
        return decoded.image.copy()
