"""95 % intervals of a share, and of a difference on the same images.

Pure: numbers in, numbers out. Nothing here imports torch.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Z: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
LEVELS: Final = (0.025, 0.975)
Right = npt.NDArray[np.bool_]
"""[n]: whether the prediction of each test image is right."""


def wilson(right: int, images: int) -> tuple[float, float]:
    """Return Wilson's interval of a share (0..1), such as an accuracy; (nan, nan) of no images.

    It stays within 0 and 1 and is not empty if all images are right. Source: Wilson, Probable
    inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if not images:
        return math.nan, math.nan
    share, unit = right / images, Z * Z / images
    middle = share + unit / 2
    half = math.sqrt(unit * (share * (1 - share) + unit / 4))
    return max(0.0, (middle - half) / (1 + unit)), min(1.0, (middle + half) / (1 + unit))


def paired_bootstrap(
    ours: Right, others: Right, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of ours - others, two accuracies on the same n > 0 images.

    Images are drawn with replacement, each with both of its predictions. How many of the drawn
    images only we, or only the others, predict rightly follows a multinomial distribution, from
    which these counts are drawn.
    """
    count = len(ours)
    gained, lost = int((ours & ~others).sum()), int((others & ~ours).sum())
    chances = np.array([gained, lost, count - gained - lost]) / count
    drawn = np.random.default_rng(seed).multinomial(count, chances, resamples)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / count, LEVELS)
    return float(low), float(high)
