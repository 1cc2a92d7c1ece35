"""The gain of the mesh over training alone, in figures and in words.

The control (policy `local`) trains alone, with the same images, seed and budget. It is measured on
the same test images as the mesh's prompts, so intervals of differences are paired. A classifier
that is a formula is measured on all images, each classified without the images of its fold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from fednode.evaluation.intervals import (
    Bounds,
    Counts,
    Z,
    balanced_bootstrap,
    pooled,
    ratio_bootstrap,
)
from fednode.evaluation.results import Evaluation

MESH: Final = "mesh"
ALONE: Final = "alone"
ZERO_SHOT: Final = "zero-shot"
OVER: Final = {ALONE: "training alone", ZERO_SHOT: "the hand-written prompt"}
FOLDS: Final = 10
"""Cross-validation leaves a node's images out in so many parts."""
POINTS: Final = 10
"""The difference, in points, for which `fednode eval` says how many images it takes to see it."""
FEWEST: Final = 6
"""So many images, or patients, on which two rows differ can tell them apart: chance makes all of
fewer fall to one side more often than in 5 % of cases."""
BALANCED: Final = 20
"""So many images, or patients, of each class the mean over classes takes to count in a verdict: of
fewer, its interval is too narrow."""
IMAGES_MAX: Final = 1_000_000_000
"""No node has more test images."""
SEEN: Final = Z + 0.8416
"""Standard errors of a difference that is found four times of five (a power of 80 %)."""
NO_TESTS: Final = "whether the mesh helps is unknown: there are no test images (data.test)"

Tests = Mapping[str, Mapping[str, Evaluation]]
"""By test set ("own", "base", "new"): the results by MESH, ALONE and ZERO_SHOT, as far as known."""


def sentences(tests: Tests, unknown: str = "") -> list[str]:
    """Return a sentence for each test set.

    The difference is that between the first two rows. unknown: why the control is not known.
    """
    texts = []
    for test, rows in tests.items():
        (first, ours), (second, others), *_ = rows.items()
        shown = ", ".join(f"{name} {100 * row.accuracy:.1f}" for name, row in rows.items())
        where = f"{test}: " if len(tests) > 1 else ""
        text = f"{shown} % of {ours.images} {ours.kind}; {_difference(first, second, ours, others)}"
        why = f"; alone is unknown: {unknown}" if unknown and first == MESH else ""
        texts.append(f"{where}{text}{why}")
    return texts or [NO_TESTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a row over another on the same images, in shares (0..1).

    accuracy, balanced: of all images, and the mean over classes; each with its 95 % interval, over
    patients if they are known. differ: images, or patients, on which the rows differ. needed: so
    many images would show a difference of POINTS; at least as many, or as many patients, as one
    takes that is all gains and no losses. smallest: images, or patients, of the smallest class that
    is tested. counts: see `intervals.pooled`.
    """

    accuracy: float
    accuracy_95: Bounds
    balanced: float
    balanced_95: Bounds
    images: int
    differ: int
    needed: int
    smallest: int
    counts: tuple[int, int, int]

    @property
    def verdict(self) -> str:
        """Whether the mesh helps, in words; the second row trains alone."""
        low, high = self.accuracy_95
        counts = self.smallest >= BALANCED
        balanced_low, balanced_high = self.balanced_95 if counts else self.accuracy_95
        better, worse = low > 0 or balanced_low > 0, high < 0 or balanced_high < 0
        if self.differ >= FEWEST and better and worse:
            of = "frequent" if low > 0 else "rare"
            return f"the mesh helps with {of} classes and harms the others"
        if self.differ >= FEWEST and (better or worse):
            return "the mesh helps" if better else "the mesh harms: training alone is better"
        if self.needed <= self.images:
            return f"no difference found, and one of {POINTS} points would show on these images"
        return (
            f"cannot tell: {self.images} images; a difference of {POINTS} points needs about "
            f"{self.needed:,}"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


@lru_cache(maxsize=3)  # of each test set, for the sentence and for JSON
def gain_over(ours: Evaluation, others: Evaluation) -> Gain:
    """Return what one row gains over another on the same images."""
    steps = ours.right.astype(float) - others.right
    known = ours.patients if ours.patients.size else None
    patients = np.arange(ours.images) if known is None else known
    ((low, high),) = ratio_bootstrap(known, steps[:, None], np.ones((ours.images, 1)))
    spread = ours.images * ((high - low) / 2 / Z) ** 2 or float(np.square(steps).mean())
    needed = _images_needed(spread, ours.images / len(np.unique(patients)))
    of_patients = np.bincount(patients, steps)
    return Gain(
        accuracy=ours.accuracy - others.accuracy,
        accuracy_95=(float(low), float(high)),
        balanced=ours.mean.sensitivity - others.mean.sensitivity,
        balanced_95=balanced_bootstrap(known, ours.truth, steps),
        images=ours.images,
        differ=len(np.unique(patients[steps != 0])),
        needed=int(float(f"{needed:.1g}")),
        smallest=min(
            len(np.unique(patients[ours.truth == label])) for label in np.unique(ours.truth)
        ),
        counts=(ours.images, int(of_patients.sum()), int(np.square(of_patients).sum())),
    )


def _images_needed(spread: float, of_patient: float = 1.0) -> float:
    """Return how many images would show a difference of POINTS.

    spread: the variance of a difference times the number of images. of_patient: images of one.
    """
    share = POINTS / 100
    return max(spread, (share - share**2) * of_patient) * (SEEN / share) ** 2


def is_possible(counts: Sequence[int]) -> bool:
    """Tell whether numbers that another node or a file has can be the counts of a Gain."""
    if len(counts) != 3 or not 0 < counts[0] < IMAGES_MAX:
        return False
    images, difference, squares = counts
    return abs(difference) <= min(images, squares) and squares <= images**2


def mesh_sentence(sites: Sequence[tuple[int, int, int]]) -> str:
    """Return what nodes gain together over training alone. sites: the counts of each (`Gain`)."""
    images, difference, squares = map(sum, zip(*sites, strict=True))
    gain, interval = pooled(images, difference, squares)
    verdict = "cannot tell"
    if squares >= FEWEST and (interval[0] > 0 or interval[1] < 0):
        verdict = "the mesh helps" if gain > 0 else "the mesh harms"
    elif _images_needed(squares / images) <= images:
        verdict = f"no difference found, and one of {POINTS} points would show"
    return (
        f"{len(sites)} nodes together, by the newest `fednode eval` of each: gain over training "
        f"alone: {_points(gain, interval, f', {images:,} images')}: {verdict}"
    )


def _difference(first: str, second: str, ours: Evaluation, others: Evaluation) -> str:
    """Return how two rows differ, in words."""
    if (ours.right == others.right).all():
        return f"{first} and {second} are right on the same images"
    gain = gain_over(ours, others)
    over = f" over {ours.patient_count} patients" if ours.patients.size else ""
    verdict = f": {gain.verdict}" if (first, second) == (MESH, ALONE) else ""
    return (
        f"gain over {OVER[second]}: {_points(gain.accuracy, gain.accuracy_95, over)}, "
        f"mean over classes {_points(gain.balanced, gain.balanced_95)}{verdict}"
    )


def _points(gain: float, interval: Bounds, over: str = "") -> str:
    low, high = interval
    return f"{100 * gain:+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f}{over})"


def folds_of(labels: Sequence[int], patients: Sequence[str], trained: Sequence[bool]) -> Counts:
    """Return the fold [n] of each image, from 0 to FOLDS - 1; -1: the image is never left out.

    trained: whether an image trains. All images of a patient are in one fold; the patients of a
    class take turns, each by the first image, those with images that train first. A class whose
    images that train would all be in one fold is not left out, because nothing would then be known
    of the class; nor is a patient who has an image of such a class.
    """
    places, turns = dict[str, int](), Counter[int]()
    for at in np.argsort(np.logical_not(trained), kind="stable"):
        label, patient = labels[at], patients[at]
        if patient not in places:
            places[patient] = (label + turns[label]) % FOLDS
            turns[label] += 1
    folds, truth = np.array([places[patient] for patient in patients], np.int64), np.array(labels)
    trains = np.array(trained, np.bool_)
    single = [label for label in set(labels) if len(set(folds[trains & (truth == label)])) == 1]
    kept = {patient for label, patient in zip(labels, patients, strict=True) if label in single}
    folds[[patient in kept for patient in patients]] = -1
    return folds


def no_better_than_chance(tests: Tests) -> list[str]:
    """Return a sentence if no row is better than chance on any test set; else nothing.

    A row is better if the interval of its accuracy lies above chance.
    """
    results = [row for rows in tests.values() for row in rows.values()]
    if not results or any(row.interval[0] > row.chance for row in results):
        return []
    best = max(results, key=lambda row: row.accuracy)
    return [
        f"no accuracy is better than chance: the best is {100 * best.accuracy:.1f} %, chance is "
        f"{100 * best.chance:.1f} %, and {best.images} images do not tell them apart. The "
        "model may not know such images: try another model (model.name: ViT-B-16, or with "
        "model.pretrained one that was trained on images like these), or more images (data.shots)"
    ]
