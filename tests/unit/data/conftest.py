"""Tiny image folders to try the data code on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from PIL import Image

from fednode.data.base import NodeData
from fednode.data.rescan import Rescan

MakeFolder = Callable[[Mapping[str, int]], Path]


def draw(path: Path) -> None:
    """Write an image that no image of another name or folder is a copy of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shade = zlib.crc32("/".join(path.parts[-3:]).encode())
    image = Image.new("RGB", (6, 5), (80, 80, 120))
    for at in range(4):
        image.putpixel((at, 0), (shade >> 8 * at & 255,) * 3)
    image.save(path)


def fresh(rescan: Rescan) -> NodeData:
    """Return the splits of a folder that changed."""
    found = rescan.look(60.0)
    assert found is not None
    return found


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Return a function that makes a data folder from image counts by class."""

    def make(counts: Mapping[str, int]) -> Path:
        root = tmp_path / "images"
        for name, count in counts.items():
            (root / name).mkdir(parents=True)
            for number in range(count):
                draw(root / name / f"{number:03d}.png")
        return root

    return make
