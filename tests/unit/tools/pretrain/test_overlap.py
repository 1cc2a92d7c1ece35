"""Copies of a test set's images are found among the pictures of the sources."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from tests.unit.tools.pretrain import world as world
from tools.pretrain.overlap import Pictures, closest, thumbnails
from tools.pretrain.styles import Picture


def recompressed(picture: Picture, size: tuple[int, int], quality: int) -> Picture:
    """Return a picture in another size, through JPEG."""
    content = io.BytesIO()
    Image.fromarray(picture).resize(size).save(content, "JPEG", quality=quality)
    return np.asarray(Image.open(content))


@pytest.mark.parametrize("change", ["smaller", "square", "same"])
def test_the_copy_of_an_image_is_the_closest(change: str) -> None:
    pictures = [(str(seed), world.photo(seed, (90, 120))) for seed in range(8)]
    original = pictures[5][1]
    copies = {
        "smaller": recompressed(original, (60, 45), 60),
        "square": np.ascontiguousarray(original[:, 15:105]),
        "same": original,
    }
    copy = copies[change]
    (pair,) = closest(Pictures.of(pictures), Pictures.of([("copy", copy)]), 3)
    assert (pair.picture, pair.image) == ("5", "copy")
    assert pair.likeness > 0.95


def test_pairs_come_most_alike_first_and_no_more_than_asked_for() -> None:
    pictures = Pictures.of((str(seed), world.photo(seed, (40, 40))) for seed in range(4))
    images = Pictures.of((str(seed), world.photo(seed, (40, 40))) for seed in (3, 9, 10))
    pairs = closest(pictures, images, 2)
    assert pairs[0].image == "3"
    assert pairs[0].likeness == pytest.approx(1.0)
    assert len(pairs) == 2
    assert pairs[1].likeness < 1.0


def test_likeness_is_the_correlation_of_grey_thumbnails() -> None:
    one, other = world.photo(1, (64, 64)), world.photo(2, (64, 64))
    grey = [
        np.asarray(Image.fromarray(picture).convert("L").resize((16, 16), Image.Resampling.BOX))
        for picture in (one, other)
    ]
    wanted = float(np.corrcoef(grey[0].ravel(), grey[1].ravel())[0, 1])
    (pair,) = closest(Pictures.of([("one", one)]), Pictures.of([("other", other)]), 1)
    assert pair.likeness == pytest.approx(wanted, abs=1e-5)


def test_a_picture_of_one_grey_is_like_nothing() -> None:
    plain = np.full((20, 30, 3), 128, np.uint8)
    assert torch.equal(thumbnails(plain), torch.zeros(2, 256))
