"""An image in memory is decoded to the same pixels as its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fednode.data.memory import files
from fednode.errors import DataError
from tests.unit.data.rgb import read_rgb

RGB = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = RGB[:, :, 0]
DEEP = GREY.astype(np.uint16) * 16


def decoded(image: Any) -> np.ndarray[Any, Any]:
    with files([image]) as (path,):
        return np.asarray(read_rgb(path, window=(0, 255 * 16)))


@pytest.mark.parametrize(
    ("image", "pixels"),
    [
        pytest.param(Image.fromarray(RGB), RGB, id="Pillow"),
        pytest.param(Image.fromarray(RGB).convert("CMYK"), RGB, id="Pillow, CMYK"),
        pytest.param(RGB, RGB, id="array of bytes"),
        pytest.param(RGB[:, ::-1], RGB[:, ::-1], id="array that is a view"),
        pytest.param(RGB / 255, RGB, id="array of floats"),
        pytest.param(GREY, np.stack([GREY] * 3, axis=2), id="grey array"),
        pytest.param(DEEP, np.stack([GREY] * 3, axis=2), id="grey array of 16 bits"),
        pytest.param(torch.tensor(RGB).permute(2, 0, 1), RGB, id="tensor of bytes"),
        pytest.param(
            (torch.tensor(RGB).permute(2, 0, 1) / 255).requires_grad_(), RGB, id="tensor of floats"
        ),
        pytest.param(torch.tensor(GREY)[None], np.stack([GREY] * 3, axis=2), id="grey tensor"),
    ],
)
def test_an_image_in_memory_has_the_pixels_of_its_file(image: Any, pixels: Any) -> None:
    np.testing.assert_allclose(decoded(image), pixels, atol=1)


def test_a_photo_is_turned_upright_as_its_file_is(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RGB).save(tmp_path / "photo.png", exif=exif)
    with Image.open(tmp_path / "photo.png") as photo:
        found = decoded(photo)
    np.testing.assert_array_equal(found, np.asarray(read_rgb(tmp_path / "photo.png")))
    assert found.shape == (7, 5, 3)


def test_a_path_is_given_as_it_is_and_files_in_memory_do_not_stay(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.png")
    with files([tmp_path / "a.png", str(tmp_path / "a.png"), RGB]) as found:
        assert found[:2] == [tmp_path / "a.png"] * 2
        assert found[2].is_file()
    assert not found[2].exists()


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("nothing.png", "There is no image file nothing.png: give the path of an image."),
        (7, "An image is of type int: give a path, a Pillow image, a numpy array or a torch"),
        (np.zeros((2, 3, 5), np.uint8), r"An image has the shape \[2, 3, 5\]; it must be"),
        (torch.zeros(5, 7, 3), r"An image has the shape \[5, 7, 3\]; it must be"),
        (RGB * 1.0, r"An image of floats holds \d+ to 255; it must hold 0 to 1: undo a normal"),
        (np.full((2, 2), np.nan), "An image of floats holds nan to nan; it must hold 0 to 1"),
        (RGB.astype(np.int64), "has numbers of type int64; give floats of 0 to 1 or uint8"),
    ],
)
def test_what_is_no_image_is_refused(image: Any, said: str) -> None:
    with pytest.raises(DataError, match=said), files([image]):
        pass
