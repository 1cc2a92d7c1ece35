"""The covariance of public images: how images spread about their classes' means, for this model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from fednode.data import builtin

if TYPE_CHECKING:
    from fednode.learn.features import Features

IMAGES: Final = 10
"""So many images of each class are encoded."""
WORK: Final = "encoding public images"
FAINT: Final = 1e-9
"""A trace below this is that of rounding errors, not of images that differ."""


def public_images(without: Collection[Path]) -> list[list[Path]]:
    """Return built-in images of each class, apart from some that do not count."""
    paths = (path for path in sorted(builtin.root().glob("*/*.jpg")) if path not in without)
    return [list(some)[:IMAGES] for _, some in groupby(paths, lambda path: path.parent)]


def public_covariance(
    features: Features, size: int, without: Collection[Path], cancelled: Callable[[], bool]
) -> npt.NDArray[np.float64]:
    """Return the covariance [D, D] of built-in images about their classes' means.

    size: D. without: the node's own training and test images, which do not count. If no two images
    of a class are left, all directions spread alike.
    """
    groups = public_images(without)
    if groups:
        paths = [path for some in groups for path in some]
        x = features.of(paths, cancelled, WORK).features.double().cpu().numpy()
        for x_class in np.split(x, np.cumsum([len(paths) for paths in groups])[:-1]):
            x_class -= x_class.mean(axis=0)
        scatter = x.T @ x
        if np.trace(scatter) > FAINT:
            covariance: npt.NDArray[np.float64] = scatter / (len(x) - len(groups))
            return covariance
    return np.eye(size) / size
