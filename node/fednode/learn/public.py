"""The covariance of public images: how images spread about their classes' means, for this model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from fednode.data import builtin
from fednode.learn.gaussian import Floats, within

if TYPE_CHECKING:
    from fednode.learn.features import Features

IMAGES: Final = 10
"""So many images of each class are encoded."""


def public_covariance(
    features: Features, size: int, without: Collection[Path], cancelled: Callable[[], bool]
) -> Floats:
    """Return the covariance [D, D] of built-in images about their classes' means.

    size: D. without: the node's own training and test images, which do not count. If no two images
    of a class are left, all directions spread alike.
    """
    found = (path for path in sorted(builtin.root().glob("*/*.jpg")) if path not in without)
    paths = [path for _, some in groupby(found, _folder) for path in list(some)[:IMAGES]]
    if paths:
        x = features.of(paths, cancelled).features.double().cpu().numpy()
        scatter = within(x, [_folder(path) for path in paths])
        if scatter.spread:
            covariance: Floats = scatter.inside / scatter.free
            return covariance
    return np.eye(size) / size


def _folder(path: Path) -> str:
    return path.parent.name
