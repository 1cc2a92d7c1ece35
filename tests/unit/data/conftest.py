"""Tiny image folders to try the data code on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from PIL import Image

MakeFolder = Callable[[Mapping[str, int]], Path]


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Return a function that makes a data folder from image counts by class."""

    def make(counts: Mapping[str, int]) -> Path:
        root = tmp_path / "images"
        root.mkdir(exist_ok=True)
        for name, count in counts.items():
            (root / name).mkdir()
            for number in range(count):
                # No two images are copies of each other.
                colour = (number % 256, number // 256, sum(map(ord, name)) % 256)
                image = Image.new("RGB", (6, 5), colour)
                image.putpixel((0, 0), (0, 0, 0))  # an image of one colour is worth a note
                image.save(root / name / f"{number:03d}.png")
        return root

    return make
