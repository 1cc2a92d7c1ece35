"""Random views of an image, drawn once: an image and a number identify a view.

The views are CoOp's augmentation: a crop of 8 to 100 % of the area with a side ratio of 3:4 to 4:3,
stretched to a square, and a flip half of the time. But instead of a new draw each time there are K
fixed draws, so that a frozen model has to encode each view once.
"""

from __future__ import annotations

import math
import random
from typing import Final

from PIL import Image, ImageOps

AREA: Final = (0.08, 1.0)
PROPORTION: Final = (3 / 4, 4 / 3)
ATTEMPTS: Final = 10
VIEW_BYTES: Final = 8
"""Bytes for each pixel of an image that drawing a view takes at most, beside the image."""


def random_view(image: Image.Image, seed: str) -> Image.Image:
    """Return a view of an image, equal for equal images and seeds."""
    draw = random.Random(seed)
    box = _box(image.width, image.height, draw)
    side = max(1, round(math.sqrt((box[2] - box[0]) * (box[3] - box[1]))))
    seen = image.resize((side, side), Image.Resampling.BICUBIC, box=box)
    return ImageOps.mirror(seen) if draw.random() < 0.5 else seen


def _box(width: int, height: int, draw: random.Random) -> tuple[int, int, int, int]:
    """Draw left, top, right and bottom; return the whole image if no draw fits into it."""
    for _ in range(ATTEMPTS):
        area = width * height * draw.uniform(*AREA)
        proportion = math.exp(draw.uniform(math.log(PROPORTION[0]), math.log(PROPORTION[1])))
        wide, high = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
        if 0 < wide <= width and 0 < high <= height:
            left, top = draw.randint(0, width - wide), draw.randint(0, height - high)
            return left, top, left + wide, top + high
    return 0, 0, width, height
