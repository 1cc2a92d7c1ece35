"""Draw the effects of prompts as pictures; needs the extra `plot` (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from fednode.core import foreign
from fednode.core.types import Array
from fednode.data.decode import decode
from fednode.data.pixels import Window
from fednode.errors import StateError
from fednode.lab.experiment.picture import new_figure

SIZE_IN: Final = 2.2
SIDE_MAX: Final = 1024
"""Pixels of a side of a picture in a figure."""
TITLE_MAX: Final = 28
"""Most characters of a line above an image."""


def draw_maps(
    images: Sequence[Path],
    titles: Sequence[str],
    plain: Array,
    tuned: Array,
    to: Path,
    window: Window = None,
) -> None:
    """Draw each image beside its two maps: zero-shot, and with the tuned prompts.

    titles: lines above each image, such as its predicted and its true class. window: of grey
    values, by which images are decoded (data.window).
    """
    count = len(images)
    figure = new_figure(3 * SIZE_IN, (SIZE_IN + 0.4) * count)
    axes = figure.subplots(count, 3, squeeze=False)
    for row, path, title, *maps in zip(axes, images, titles, plain, tuned, strict=True):
        picture = _square(path, window)
        extent = (0, len(picture), len(picture), 0)
        for axis, shares, words in zip(row, (None, *maps), ("", "zero-shot", "tuned"), strict=True):
            axis.imshow(picture, extent=extent)
            if shares is not None:
                axis.imshow(shares, extent=extent, cmap="jet", alpha=0.5, interpolation="bilinear",
                            vmin=0, vmax=1)  # fmt: skip
            lines = (words or title).split("\n")
            axis.set_title("\n".join(foreign.line(line, TITLE_MAX) for line in lines), fontsize=9)
            axis.set_axis_off()
    try:
        figure.savefig(to, dpi=120)
    except (OSError, ValueError) as fault:
        raise StateError(
            f"{to} cannot be written: {fault}; choose another with --to, such as picture.png."
        ) from fault


def _square(path: Path, window: Window) -> Any:
    """Return the central square of an image, as the model sees it: [side, side, 3]."""
    with decode(path, window=window) as decoded:
        side = min(decoded.image.size)
        left, top = (decoded.image.width - side) // 2, (decoded.image.height - side) // 2
        square = decoded.image.crop((left, top, left + side, top + side))
        square.thumbnail((SIDE_MAX, SIDE_MAX))
    return np.asarray(square)
