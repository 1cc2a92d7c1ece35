"""A classifier from counts and means of classes, one Gaussian for each class: no gradient.

A node's images give, for each class c, their number n_c and the sum s_c of their unit features x
[D]. Sums of nodes add up to the sums over all images, so M_c = s_c / n_c are the means that a
single owner of all images would have. With C classes:

    W    = sum of (x - M_c)(x - M_c)^T over the node's own images, each about the node's own mean
         + sum of n_ic (M_ic - M_c)(M_ic - M_c)^T over nodes i and classes c
    f    = degrees of freedom of W;  s = tr W / f;  S = public covariance, with trace s
    P    = ((W + g S + rho s I / D) / (f + g + rho))^-1                      g = rho = 100
    p_c  = m + a (t_c - t)              where a class's text t_c says that its mean is; m, t: means
                                        over classes; a: least squares over classes with images
    mu_c = (s_c + kappa p_c) / (n_c + kappa)                                 kappa = 1
    g_c  = x^T P mu_c - mu_c^T P mu_c / 2        log of the density, up to a term of x

So the covariance is that of the node's own images and of the nodes' means about the common mean,
drawn to a public covariance and to a sphere, each as strongly as 100 images would. Other nodes'
images count as if each were its class's mean at its node; no node tells how its images spread.
All arrays are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Texts = Callable[[Sequence[str]], Floats]
"""Return the unit text features [C, D] of class names."""
PUBLIC = 100.0
"""g: the public covariance is worth so many images."""
SPHERE = 100.0
"""rho: equal variance in all directions is worth so many images."""
TEXT = 1.0
"""kappa: a class's text is worth so many images of the class."""
FOLDS = 10
"""A node's own images are left out in so many parts."""
SURELY = 2.0
"""A difference counts that is so many standard errors above 0."""
SCALES = np.geomspace(0.25, 64.0, 17)
"""Factors of logits, for a comparison of classifiers whose logits differ in scale."""
FAINT = 1e-9
"""A trace below this is that of rounding errors, not of images that differ."""


class Scatter(NamedTuple):
    """W [D, D] and its degrees of freedom f."""

    inside: Floats
    free: float

    @property
    def spread(self) -> float:
        """Return s, the mean squared distance of an image from its class's mean; 0 if unknown."""
        trace = float(np.trace(self.inside))
        return trace / self.free if self.free >= 1 and trace > FAINT else 0.0

    def plus(self, other: Scatter) -> Scatter:
        """Return the sum of both."""
        return Scatter(self.inside + other.inside, self.free + other.free)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Counts n_c [C] and sums s_c [C, D] of some images, for the classes that have images."""

    classes: tuple[str, ...]
    counts: Floats
    sums: Floats

    @classmethod
    def of(cls, x: Floats, names: Sequence[str]) -> Sums:
        """Return the sums over images: unit features [n, D], and the class name of each image."""
        classes, labels = tuple(sorted(set(names))), np.array(names, object)
        counts = np.array([float((labels == name).sum()) for name in classes])
        sums = np.array([x[labels == name].sum(axis=0) for name in classes])
        return cls(classes, counts, sums.reshape(-1, x.shape[1]))

    @property
    def means(self) -> Floats:
        """M_c [C, D]."""
        return self.sums / self.counts[:, None]

    def at(self, classes: Sequence[str]) -> tuple[Floats, Floats]:
        """Return counts [C] and sums [C, D] of given names; 0 for classes without images."""
        counts, sums = np.zeros(len(classes)), np.zeros((len(classes), self.sums.shape[1]))
        here = {name: at for at, name in enumerate(self.classes)}
        for at, name in enumerate(classes):
            if name in here:
                counts[at], sums[at] = self.counts[here[name]], self.sums[here[name]]
        return counts, sums


def pool(parts: Sequence[Sums]) -> Sums:
    """Return the sums over the images of all parts, added in the order given; one part at least."""
    classes = tuple(sorted({name for one in parts for name in one.classes}))
    counts, sums = (
        np.sum(part, axis=0) for part in zip(*(one.at(classes) for one in parts), strict=True)
    )
    return Sums(classes, counts, sums)


def within(x: Floats, names: Sequence[str]) -> Scatter:
    """Return the scatter of images about the means of their classes."""
    sums, size = Sums.of(x, names), x.shape[1]
    if not len(x):
        return Scatter(np.zeros((size, size)), 0.0)
    off = x - sums.means[[sums.classes.index(name) for name in names]]
    return Scatter(off.T @ off, float(len(x) - len(sums.classes)))


def merge(parts: Sequence[Sums]) -> tuple[Sums, Scatter]:
    """Return the sums over the images of all parts, and the scatter of the parts' means.

    The scatter is that about the common means; each mean counts as often as it has images. Merged
    parts can be merged again: the scatters of both steps add up to that of one step.
    """
    whole = pool(parts)
    inside = np.zeros((whole.sums.shape[1],) * 2)
    for one in parts:
        counts, sums = whole.at(one.classes)
        off = np.sqrt(one.counts)[:, None] * (one.means - sums / counts[:, None])
        inside += off.T @ off
    return whole, Scatter(inside, sum(len(one.classes) for one in parts) - len(whole.classes))


class GaussianClassifier:
    """The classifier of some sums; see the file's header."""

    def __init__(self, sums: Sums, texts: Texts, scatter: Scatter, public: Floats) -> None:
        """Fit the classifier. scatter: W and f. public: S [D, D], of any trace above 0."""
        self.sums, self.texts = sums, texts
        size = len(public)
        # Without two images of a class anywhere, images spread as the public ones do.
        self.spread = scatter.spread or float(np.trace(public))
        drawn = PUBLIC * public / np.trace(public) + SPHERE * np.eye(size) / size
        inside = scatter.inside + self.spread * drawn
        self.precision: Floats = np.linalg.inv(inside / (scatter.free + PUBLIC + SPHERE))
        self._text, self._mean, self._slope = np.zeros(size), np.zeros(size), 1.0
        if sums.classes:  # else a mean lies at its text
            known, means = texts(sums.classes), sums.means
            self._text, self._mean = known.mean(axis=0), means.mean(axis=0)
            along = known - self._text
            most = max(float(np.square(along).sum()), 1e-12)
            self._slope = float((along * (means - self._mean)).sum()) / most

    def centres(self, classes: Sequence[str]) -> Floats:
        """Return mu [C, D]; p_c for a class without images."""
        counts, sums = self.sums.at(classes)
        prior = self._mean + self._slope * (self.texts(classes) - self._text)
        found: Floats = (sums + TEXT * prior) / (counts + TEXT)[:, None]
        return found

    def log_density(
        self, x: Floats, classes: Sequence[str], own: Sums | None = None, weight: float = 0.0
    ) -> Floats:
        """Return g [n, C] of unit features [n, D].

        With own sums and a weight, each own class's mu is drawn to the node's own mean of it: the
        mesh's mu counts as many images as the weight says.
        """
        centres = self.centres(classes)
        if own is not None and weight:
            counts, sums = own.at(classes)
            mine = counts > 0
            drawn = sums[mine] + weight * centres[mine]
            centres[mine] = drawn / (counts[mine] + weight)[:, None]
        pulled = centres @ self.precision
        found: Floats = x @ pulled.T - 0.5 * (pulled * centres).sum(axis=1)
        return found


def peer_weight(own: Sums, others: Sums, spread: float) -> float:
    """Return how many own images of a class the mesh's mean of it is worth to a node.

    Empirical Bayes: the node's means lie at a squared distance d from the others'; s / n of it is
    chance, where s is the spread of the node's images. w = s / (d - s / n), at most as many images
    as the others have. Large: the others' images are like own ones. Near 0: they are of another
    kind, so own images count alone. 0 if no other node has the node's classes.
    """
    counts, sums = others.at(own.classes)
    shared = counts > 0
    if not shared.any():
        return 0.0
    off = own.means[shared] - sums[shared] / counts[shared][:, None]
    apart = float((np.square(off).sum(axis=1) - spread / own.counts[shared]).mean())
    most = float(counts[shared].mean())
    return min(most, spread / max(apart, spread / most)) if spread > 0 else most


def log_loss(logits: Floats, labels: npt.NDArray[Any]) -> Floats:
    """Return the cross-entropy [n] of each image; labels [n] index the columns."""
    peak = logits.max(axis=1, keepdims=True)
    whole = peak[:, 0] + np.log(np.exp(logits - peak).sum(axis=1))
    return np.asarray(whole - logits[np.arange(len(labels)), labels])


def least_loss(logits: Floats, labels: npt.NDArray[Any]) -> Floats:
    """Return the cross-entropy [n] of each image at the factor of SCALES with the least mean."""
    tables = [log_loss(logits * scale, labels) for scale in SCALES]
    return min(tables, key=lambda losses: float(losses.mean()))


def folds_of(names: Sequence[str], patients: Sequence[bytes] = ()) -> list[npt.NDArray[np.bool_]]:
    """Return at most FOLDS masks of images, which leave out about as many images of each class.

    names: the class of each image. patients: of each image, if they are known; all images of a
    patient are in one mask.
    """
    place = {name: at for at, name in enumerate(sorted(set(names)))}  # classes begin in turns
    fold = dict[int | bytes, int]()
    units: Sequence[int | bytes] = patients or range(len(names))
    for unit, name in zip(units, names, strict=True):
        if unit not in fold:
            fold[unit] = place[name] % FOLDS
            place[name] += 1
    folds = np.array([fold[unit] for unit in units])
    masks = [folds == at for at in range(FOLDS)]
    return [mask for mask in masks if mask.any()]


def surely(worse: Floats) -> float:
    """Return by how much a mean is surely above 0; below 0 if it is not, or for one image."""
    if len(worse) < 2:
        return -1.0
    return float(worse.mean() - SURELY * worse.std(ddof=1) / len(worse) ** 0.5)
