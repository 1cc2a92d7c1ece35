"""A classifier from sums over images, one Gaussian for each class: no gradient, no rounds.

A node's images give, for each class c, their number n_c and the sum s_c of their unit features x
[D]; Q = sum of x x^T is optional. Sums of nodes add up to the sums over all images, so the
classifier of a mesh is the one that a single owner of all images would have. With M_c = s_c / n_c,
N images and C classes:

    W    = Q - sum_c s_c s_c^T / n_c                      scatter of images about their class's mean
    P    = ((W + rho tau I) / (f + rho))^-1               f = N - C, tau = tr W / (f D)
    p_c  = m + a (t_c - t) + k_c^T A                      where a class's text t_c says that its
                                                          mean is; m, t: means over classes
    mu_c = (s_c + kappa p'_c) / (n_c + kappa)             p'_c: p_c without k_c^T A; mu_c = p_c
                                                          for a class without images
    g_c  = x^T P mu_c - mu_c^T P mu_c / 2                 log of the density, up to a term of x

Without Q of the other nodes, W is the scatter of a node's own images plus that of the nodes' means
about the mesh's means (`between`). a and A (ridge regression in the kernel form, strength lam) map
texts to means; they are fitted on the classes that have images. Arrays are float64.

It is linear discriminant analysis with texts as the prior of the means. With kappa 0 and
rho = f D / (N - 1) it is the classifier of Wang et al. (arXiv 2402.04087), up to a factor of g.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Texts = Callable[[Sequence[str]], Floats]
"""Return the unit text features [C, D] of class names."""
Scatter = tuple[Floats, float]
"""W [D, D] and its degrees of freedom f."""
FAINT = 1e-9
"""A trace below this is that of rounding errors, not of images that differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over some images; only classes that have images.

    classes: names, sorted. counts [C]: n_c. sums [C, D]: s_c. moment [D, D]: Q, None if unknown.
    """

    classes: tuple[str, ...]
    counts: Floats
    sums: Floats
    moment: Floats | None = None

    @classmethod
    def of(cls, features: npt.ArrayLike, labels: npt.ArrayLike, classes: Sequence[str]) -> Sums:
        """Return the sums over images: unit features [n, D], labels [n] that index classes."""
        x, y = np.asarray(features, np.float64), np.asarray(labels)
        names = sorted(name for at, name in enumerate(classes) if (y == at).any())
        places = [list(classes).index(name) for name in names]
        counts = np.array([float((y == at).sum()) for at in places])
        sums = np.array([x[y == at].sum(axis=0) for at in places]).reshape(-1, x.shape[1])
        return cls(tuple(names), counts, sums, x.T @ x)

    @property
    def means(self) -> Floats:
        """M [C, D]."""
        return self.sums / self.counts[:, None]

    @property
    def scatter(self) -> Scatter:
        """W and its degrees of freedom; requires Q."""
        assert self.moment is not None, "the scatter of images needs their second moment"
        inside = self.moment - (self.sums / self.counts[:, None]).T @ self.sums
        return inside, float(self.counts.sum()) - len(self.classes)

    def at(self, classes: Sequence[str]) -> tuple[Floats, Floats]:
        """Return counts [C] and sums [C, D] of given names; 0 for classes without images."""
        counts, sums = np.zeros(len(classes)), np.zeros((len(classes), self.sums.shape[1]))
        here = {name: at for at, name in enumerate(self.classes)}
        for at, name in enumerate(classes):
            if name in here:
                counts[at], sums[at] = self.counts[here[name]], self.sums[here[name]]
        return counts, sums

    def without(self, other: Sums) -> Sums:
        """Return the sums over the images that are not among `other`'s, which must be in these."""
        counts, sums = other.at(self.classes)
        left, rest = self.counts - counts, self.sums - sums
        stay = left > 0.5
        known = self.moment is not None and other.moment is not None
        moment = self.moment - other.moment if known else None  # type: ignore[operator]
        names = tuple(name for name, one in zip(self.classes, stay, strict=True) if one)
        return Sums(names, left[stay], rest[stay], moment)


def total(parts: Sequence[Sums]) -> Sums:
    """Return the sums over the images of all parts, added in the order given.

    Q is known if all parts know theirs. Requires one part at least.
    """
    classes = tuple(sorted({name for one in parts for name in one.classes}))
    counts, sums = np.zeros(len(classes)), np.zeros((len(classes), parts[0].sums.shape[1]))
    moment: Floats | None = np.zeros((sums.shape[1],) * 2)
    for one in parts:
        more, added = one.at(classes)
        counts, sums = counts + more, sums + added
        moment = None if moment is None or one.moment is None else moment + one.moment
    return Sums(classes, counts, sums, moment)


def between(own: Scatter, parts: Sequence[Sums]) -> Scatter:
    """Return W and f for nodes that send no Q: a node's own scatter and that of the nodes' means.

    parts: of all nodes, the node's own among them.
    """
    whole, (inside, free) = total(parts), own
    for one in parts:
        counts, sums = whole.at(one.classes)
        off = np.sqrt(one.counts)[:, None] * (one.means - sums / counts[:, None])
        inside = np.asarray(inside + off.T @ off, np.float64)
    return inside, free + sum(len(one.classes) for one in parts) - len(whole.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """How much the classifier trusts what it knows without images.

    rho: images' worth of the covariance's equal part; None for the shrinkage of arXiv 2402.04087.
    kappa: images' worth of a class's text. lam: strength of the ridge of the map from texts.
    """

    rho: float | None = 100.0
    kappa: float = 1.0
    lam: float = 1.0


def _ridge(texts: Floats, wanted: Floats, strength: float) -> Floats:
    """Return the map [D, D] of ridge regression of texts [C, D] on wanted [C, D].

    It solves as many equations as there are classes, or dimensions if these are fewer.
    """
    count, size = texts.shape
    if count <= size:
        kernel = texts @ texts.T + strength * np.eye(count)
        return np.asarray(texts.T @ np.linalg.solve(kernel, wanted), np.float64)
    square = texts.T @ texts + strength * np.eye(size)
    return np.asarray(np.linalg.solve(square, texts.T @ wanted), np.float64)


class Line:
    """Where texts say that means are: p_c and p'_c of the file's header. texts, means: [C, D]."""

    def __init__(self, texts: Floats, means: Floats, lam: float) -> None:
        self.count, size = means.shape
        self.text, self.mean = np.zeros(size), np.zeros(size)
        self.centred, self.slope, self.most = texts, 1.0, 1.0
        self._map: Floats = np.zeros((size, size))
        if not self.count:  # no class has an image: a mean lies at its text
            return
        self.text, self.mean = texts.mean(axis=0), means.mean(axis=0)
        self.centred, centred = texts - self.text, means - self.mean
        self.most = max(float(np.square(self.centred).sum()), 1e-12)
        self.slope = float((self.centred * centred).sum()) / self.most
        rest = centred - self.slope * self.centred
        strength = lam * max(float(np.square(self.centred).sum(axis=1).mean()), 1e-12)
        self._map = _ridge(self.centred, rest, strength)

    def plain(self, texts: Floats) -> Floats:
        """Return p' [n, D] of texts [n, D]."""
        return self.mean + self.slope * (texts - self.text)

    def mapped(self, texts: Floats) -> Floats:
        """Return p [n, D] of texts [n, D]."""
        return self.plain(texts) + (texts - self.text) @ self._map


class _Turned:
    """Sums and texts in the basis U, so that an image more or less costs C D products, not C D^2.

    Of classes that all have images, in the order of `sums` [C, D].
    """

    def __init__(self, basis: Floats, sums: Floats, texts: Floats, line: Line) -> None:
        self._basis, self._sums = basis, sums @ basis
        self._texts = (texts - line.text) @ basis

    def centres(self, line: Line, counts: Floats, place: int, here: Floats, kappa: float) -> Floats:
        """Return mu U [C, D] for counts [C] without an image x U [D] of the class at a place."""
        found = self._sums + kappa * (line.mean @ self._basis + line.slope * self._texts)
        found[place] -= here
        turned: Floats = found / (counts + kappa)[:, None]
        return turned


class Head:
    """The classifier of some sums; see the file's header."""

    def __init__(
        self, sums: Sums, texts: Texts, prior: Prior | None = None, scatter: Scatter | None = None
    ) -> None:
        """Fit the classifier. scatter: W and f if they are not those of the sums."""
        self.sums, self.texts, self.prior = sums, texts, prior or Prior()
        inside, self.free = scatter or sums.scatter
        self.trace = float(np.trace(inside))
        size = len(inside)
        # W = U diag(spread) U^T: the inverse is then known for any tau.
        spread, self._basis = np.linalg.eigh(inside)
        self._spread = np.maximum(spread, 0.0)
        self._texts = texts(sums.classes) if sums.classes else np.zeros((0, size))
        self.line = Line(self._texts, sums.means, self.prior.lam)
        images = float(sums.counts.sum())
        self._weights, self._scale = self._inverse(self.trace, self.free, images, sums.means)
        self.precision = self._scale * (self._basis * self._weights) @ self._basis.T

    def _inverse(
        self, trace: float, free: float, images: float, means: Floats
    ) -> tuple[Floats, float]:
        """Return 1 / (spread + rho tau) [D] and f + rho: P is the second times the first in U."""
        size = len(self._spread)
        if free < 1:  # one image a class: a sphere as wide as the classes' means lie apart
            off = means - means.mean(axis=0) if len(means) else means
            trace, free = float(np.square(off).sum()) / max(len(means), 1), 1.0
        trace = trace if trace > FAINT else 1.0
        rho = self.prior.rho
        if rho is None:
            rho = free * size / max(images - 1.0, 1.0)
        return 1.0 / (self._spread + rho * trace / (free * size)), free + rho

    def centres(self, classes: Sequence[str]) -> Floats:
        """Return mu [C, D]."""
        counts, sums = self.sums.at(classes)
        return self._centres(self.line, counts, sums, self.texts(classes))

    def _centres(self, line: Line, counts: Floats, sums: Floats, texts: Floats) -> Floats:
        found, seen, kappa = line.mapped(texts), counts > 0.5, self.prior.kappa
        prior = kappa * line.plain(texts)[seen]
        found[seen] = (sums[seen] + prior) / (counts[seen] + kappa)[:, None]
        return found

    def gauss(
        self, x: Floats, classes: Sequence[str], own: Sums | None = None, weight: float = 0.0
    ) -> Floats:
        """Return g [n, C] of unit features [n, D].

        With own sums and a weight, each own class's mu is drawn to the node's own mean of it: the
        mesh's mu counts as many images as the weight says.
        """
        centres = self.centres(classes)
        if own is not None and weight:
            centres = near(centres, *own.at(classes), weight)
        pulled = centres @ self.precision
        found: Floats = x @ pulled.T - 0.5 * (pulled * centres).sum(axis=1)
        return found

    def left_out(
        self,
        x: Floats,
        names: Sequence[str],
        classes: Sequence[str],
        own: Sums | None = None,
        weight: float = 0.0,
    ) -> Floats:
        """Return g [n, C] of images that are in the sums, each by the classifier without it.

        names: the images' classes. classes: names that have images, the images' own among them.
        Exact but for `weight`, which stays. It costs n C D products.
        """
        counts, sums = self.sums.at(classes)
        places = {name: at for at, name in enumerate(classes)}
        turn = _Turned(self._basis, sums, self.texts(classes), self.line)
        mine = own.at(classes) if own is not None and weight else None
        ours = None if mine is None else mine[1] @ self._basis
        found = np.empty((len(x), len(classes)))
        for at, (one, name) in enumerate(zip(x, names, strict=True)):
            place, here = places[name], one @ self._basis
            left = counts.copy()
            left[place] -= 1.0
            lone = left[place] < 0.5
            line, slim = self._less(name, one, lone)
            if lone:
                rest = sums.copy()
                rest[place] = 0.0
                inside = self._centres(line, left, rest, self.texts(classes)) @ self._basis
            else:
                inside = turn.centres(line, left, place, here, self.prior.kappa)
            if mine is not None and ours is not None:
                fewer, less = mine[0].copy(), ours.copy()
                fewer[place], less[place] = fewer[place] - 1.0, less[place] - here
                inside = near(inside, fewer, less, weight)
            weights, scale, turned, gain = self._slimmer(slim, one, name, lone)
            pulled = scale * (inside @ (weights * here) - 0.5 * np.square(inside) @ weights)
            along = inside @ turned
            found[at] = pulled + scale * gain * along * (here @ turned - 0.5 * along)
        return found

    def _less(self, name: str, one: Floats, lone: bool) -> tuple[Line, Floats]:
        """Return the line of texts without an image of a class, and the classes' means [C, D].

        Only the class's mean moves, by d: m moves by d / C, and a by (t_c - t) d / sum |t_c - t|^2.
        """
        place = self.sums.classes.index(name)
        if lone:
            means = np.delete(self.sums.means, place, axis=0)
            return Line(np.delete(self._texts, place, axis=0), means, self.prior.lam), means
        means = self.sums.means
        moved = (means[place] - one) / (self.sums.counts[place] - 1.0)
        means[place] += moved
        line = object.__new__(Line)
        line.__dict__.update(self.line.__dict__)
        line.mean = self.line.mean + moved / line.count
        line.slope = self.line.slope + float(self.line.centred[place] @ moved) / line.most
        return line, means

    def _slimmer(
        self, means: Floats, one: Floats, name: str, lone: bool
    ) -> tuple[Floats, float, Floats, float]:
        """Return P without an image: weights [D] and scale as `_inverse`, and a change of rank one.

        With v the third, P is scale * (diag(weights) + gain * v v^T) in the basis U.
        """
        images = float(self.sums.counts.sum()) - 1.0
        place = self.sums.classes.index(name)
        count = self.sums.counts[place]
        if lone:
            return *self._inverse(self.trace, self.free, images, means), np.zeros_like(one), 0.0
        share = count / (count - 1.0)
        off = one - self.sums.sums[place] / count
        trace = self.trace - share * float(off @ off)
        weights, scale = self._inverse(trace, self.free - 1.0, images, means)
        turned = weights * (off @ self._basis)
        gain = share / (1.0 - share * float((off @ self._basis) @ turned))
        return weights, scale, turned, gain

    def worth(self, own: Sums, scatter: Scatter | None = None) -> float:
        """Return how many own images of a class the mesh's mean of it is worth to a node.

        Empirical Bayes: the node's means lie at a squared distance d from the others'; s / n of it
        is chance, where s is the spread of the node's images. w = s / (d - s / n), at most as many
        images as the others have. Large: the others' images are like own ones. Near 0: they are of
        another kind, so own images count alone. 0 if no other node has the node's classes.

        own: among the head's sums. scatter: of the node's own images, if `own` has no Q.
        """
        others, theirs = self.sums.without(own).at(own.classes)
        shared = others > 0.5
        if not shared.any():
            return 0.0
        inside, free = scatter or own.scatter
        spread = float(np.trace(inside)) / free if free >= 1 else self.trace / max(self.free, 1.0)
        off = own.means[shared] - theirs[shared] / others[shared][:, None]
        apart = float((np.square(off).sum(axis=1) - spread / own.counts[shared]).mean())
        most = float(others[shared].mean())
        return min(most, spread / max(apart, spread / most)) if spread > 0 else most


def near(centres: Floats, counts: Floats, sums: Floats, weight: float) -> Floats:
    """Return centres [C, D] drawn to own means of counts [C] and sums [C, D]."""
    own = counts > 0.5
    found = centres.copy()
    found[own] = (sums[own] + weight * centres[own]) / (counts[own] + weight)[:, None]
    return found


def class_means(sums: Sums, texts: Texts, x: Floats, classes: Sequence[str]) -> Floats:
    """Return cosines [n, C] with the classes' means; a class without images has its text's.

    Nearest class mean, which nodes' sums give exactly (Legate et al., arXiv 2306.03937).
    """
    counts, found = sums.at(classes)
    seen = counts > 0.5
    found[~seen] = texts(classes)[~seen]
    unit: Floats = found / np.linalg.norm(found, axis=1, keepdims=True)
    cosines: Floats = x @ unit.T
    return cosines
