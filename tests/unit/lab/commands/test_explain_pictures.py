"""Pictures of `fednode explain`: the square that the model sees, titles of a bounded length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fednode.errors import StateError
from fednode.lab.commands.explain import TITLE_MAX, _square, draw_maps

pytest.importorskip("matplotlib")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return a wide image whose left and right thirds are black."""
    pixels = np.zeros((30, 90, 3), dtype=np.uint8)
    pixels[:, 30:60] = 200
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    return tmp_path / "wide.png"


def test_the_picture_is_the_central_square(image: Path) -> None:
    square = _square(image, None)
    assert square.shape == (30, 30, 3)
    assert (square == 200).all()


def test_each_image_stands_beside_its_two_maps_under_a_short_title(
    image: Path, tmp_path: Path
) -> None:
    maps = np.zeros((2, 3, 3), dtype=np.float32)
    titles = ["cat\nwas dog", "x" * 100]
    draw_maps([image, image], titles, maps, maps + 1, tmp_path / "maps.svg")
    drawn = (tmp_path / "maps.svg").read_text()
    for words in ("cat", "was dog", "zero-shot", "tuned"):
        assert f"<!-- {words} -->" in drawn
    assert f"<!-- {'x' * (TITLE_MAX + 1)}" not in drawn


def test_a_picture_that_cannot_be_written_is_said(image: Path, tmp_path: Path) -> None:
    maps = np.zeros((1, 3, 3), dtype=np.float32)
    with pytest.raises(StateError, match=r"cannot be written: .* choose another with --to"):
        draw_maps([image], ["cat"], maps, maps, tmp_path / "none" / "maps.svg")
