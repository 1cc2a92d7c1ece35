"""95 % intervals of a share, and of a difference on the same images.

Images of one patient are not independent. Where patients are known, a bootstrap draws patients with
replacement, each with all of its images (Field and Welsh, Bootstrapping clustered data, JRSS B 69,
2007). Where they are not known (None), it draws images, of which equal ones are drawn together: how
often each kind comes follows a multinomial distribution.

Pure: numbers in, numbers out. Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Z: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
LEVELS: Final = (0.025, 0.975)
RESAMPLES: Final = 2_000
BLOCK: Final = 2_000_000
"""Numbers of drawn patients, or of their images, that are held at a time."""
Bounds = tuple[float, float]
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Right = npt.NDArray[np.bool_]
"""[n]: whether the prediction of each test image is right."""


def wilson(right: int, images: int) -> Bounds:
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


def ratio_bootstrap(patients: Counts | None, parts: Numbers, wholes: Numbers) -> Numbers:
    """Return the percentile intervals [K, 2] of sum(parts) / sum(wholes).

    patients: [n], the number of each image's patient, from 0. parts, wholes: [n, K]. An interval is
    nan if its wholes add up to 0.
    """
    if patients is None:
        both, counts = np.unique(np.hstack([parts, wholes]), axis=0, return_counts=True)
        above, below = np.hsplit(both, 2)
    else:
        counts = np.ones(int(patients.max()) + 1, np.int64)
        above, below = np.zeros((2, len(counts), parts.shape[1]))
        np.add.at(above, patients, parts)
        np.add.at(below, patients, wholes)
    return np.array([_percentiles(column) for column in _ratios(counts, above, below).T])


def balanced_bootstrap(patients: Counts | None, truth: Counts, steps: Numbers) -> Bounds:
    """Return the percentile interval of the mean over classes of a class's mean step.

    patients, truth: [n], the number of each image's patient and of its class, from 0. steps: [n].
    The mean of a draw is that of the classes which the draw has.
    """
    if patients is None:
        kinds, counts = np.unique(np.stack([truth, steps], axis=1), axis=0, return_counts=True)
        truth, steps, patients = kinds[:, 0].astype(np.int64), kinds[:, 1], np.arange(len(kinds))
    else:
        counts = np.ones(int(patients.max()) + 1, np.int64)
    above, below = np.zeros((2, len(counts), int(truth.max()) + 1))
    np.add.at(above, (patients, truth), steps)
    np.add.at(below, (patients, truth), 1.0)
    return _percentiles(np.nanmean(_ratios(counts, above, below), axis=1))


def pooled(images: int, difference: int, squares: int) -> tuple[float, Bounds]:
    """Return the mean difference of the images of all sites, and its 95 % interval.

    The arguments are sums over sites: of their images; of how many of them one row is right on and
    the other is not, less the reverse; of the squares of this difference over patients, or over
    images. Patients are independent, so the squares bound the variance of the sum. The interval is
    normal, and a little wider than needed where the difference is large.
    """
    mean, half = difference / images, Z * math.sqrt(squares) / images
    return mean, (max(-1.0, mean - half), min(1.0, mean + half))


def auc_bootstrap(patients: Counts, positive: Right, scores: Numbers) -> Bounds:
    """Return the percentile interval of the AUC over patients; nan if no draw has one.

    An image that draws weigh w times counts as w images, so the AUC of a draw is a sum over the
    images in the order of their scores; images of one score are taken together.
    """
    order = np.argsort(scores, kind="stable")
    ordered, right, found = scores[order], positive[order], []
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for drawn in _draws(np.ones(int(patients.max()) + 1), len(scores)):
        weights = drawn[:, patients[order]]
        above = np.add.reduceat(weights * right, firsts, axis=1)
        below = np.add.reduceat(weights * ~right, firsts, axis=1)
        won = (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(won / (above.sum(axis=1) * below.sum(axis=1)))
    return _percentiles(np.concatenate(found))


def _ratios(counts: Counts, above: Numbers, below: Numbers) -> Numbers:
    """Return the ratios [RESAMPLES, K] of sums over drawn kinds, of which each has [K] numbers."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.concatenate([(drawn @ above) / (drawn @ below) for drawn in _draws(counts)])


def _draws(counts: npt.NDArray[Any], images: int = 0) -> Iterator[Numbers]:
    """Yield blocks [b, K] of how often each of K kinds of patients is drawn.

    counts: [K], patients of each kind; as many are drawn as there are. images: held for each draw.
    """
    draw, size = np.random.default_rng(0), max(1, BLOCK // max(len(counts), images))
    patients = int(counts.sum())
    for at in range(0, RESAMPLES, size):
        times = min(size, RESAMPLES - at)
        yield draw.multinomial(patients, counts / patients, times).astype(np.float64)


def _percentiles(values: Numbers) -> Bounds:
    defined = values[np.isfinite(values)]
    if not defined.size:
        return math.nan, math.nan
    low, high = np.quantile(defined, LEVELS)
    return float(low), float(high)
