"""Write images that are in memory to files, because fednode reads every image from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from PIL import Image, ImageOps

from fednode.errors import DataError

SHAPES: Final = (
    "[height, width], [height, width, 1, 3 or 4], or for a tensor [1, 3 or 4, height, width]"
)
CHANNELS: Final = (1, 3, 4)


@contextmanager
def files(images: Sequence[Any]) -> Iterator[list[Path]]:
    """Give the path of each image; files of images in memory last until the end of the block.

    images: paths, Pillow images, numpy arrays [H, W] or [H, W, C], or torch tensors [H, W] or
    [C, H, W], with C of 1, 3 or 4. Arrays of floats hold 0 to 1, arrays of uint8 0 to 255. A grey
    array of uint16 is read by `data.window`, as a file of 16 bits. Raise DataError if a path is no
    file, or an image has another type, shape or range.
    """
    with TemporaryDirectory(prefix="fednode-") as folder:
        yield [_file(image, Path(folder) / f"{at}.tif") for at, image in enumerate(images)]


def _file(image: Any, target: Path) -> Path:
    if isinstance(image, str | os.PathLike):
        path = Path(image)
        if not path.is_file():
            raise DataError(f"There is no image file {path}: give the path of an image.")
        return path
    picture = image if isinstance(image, Image.Image) else _picture(image)
    ImageOps.exif_transpose(picture).save(target)  # TIFF keeps every kind of pixel
    return target


def _picture(image: Any) -> Image.Image:
    if hasattr(image, "detach"):  # a torch tensor has its channels first
        values = image.detach().cpu().numpy()
        values = np.moveaxis(values, 0, -1) if values.ndim == 3 else values
    elif isinstance(image, np.ndarray):
        values = image
    else:
        raise DataError(
            f"An image is of type {type(image).__name__}: give a path, a Pillow image, a numpy "
            "array or a torch tensor."
        )
    channels = values.shape[2:] or (1,)
    if values.ndim not in (2, 3) or not values.size or channels[0] not in CHANNELS:
        raise DataError(f"An image has the shape {list(image.shape)}; it must be {SHAPES}.")
    if channels == (1,):
        values = values.reshape(values.shape[:2])
    if np.issubdtype(values.dtype, np.floating):
        low, high = float(values.min()), float(values.max())
        if not 0.0 <= low <= high <= 1.0:
            raise DataError(
                f"An image of floats holds {low:g} to {high:g}; it must hold 0 to 1: undo a "
                "normalization, or give an array of uint8."
            )
        values = np.rint(values * 255).astype(np.uint8)
    if values.dtype != np.uint8 and (values.dtype != np.uint16 or values.ndim == 3):
        raise DataError(
            f"An image of shape {list(image.shape)} has numbers of type {values.dtype}; give "
            "floats of 0 to 1 or uint8, or uint16 if it is grey."
        )
    return Image.fromarray(np.ascontiguousarray(values))
