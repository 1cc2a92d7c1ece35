"""Results by class: what a classifier gets right on test images. Imports no torch.

Each class is compared with the rest: its images are positive and all other test images negative. An
image's prediction is its most probable class; of equal probabilities the first class counts.
docs/evaluation.md defines the figures. A figure that divides by no image is undefined (nan), and no
mean counts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fednode.evaluation.intervals import (
    Bounds,
    Counts,
    Numbers,
    Right,
    auc_bootstrap,
    ratio_bootstrap,
    wilson,
)

FIGURES: Final = ("sensitivity", "specificity", "auc")


@dataclass(frozen=True, slots=True)
class ClassResult:
    """Figures (0..1; nan if undefined) of one class against the rest, or their means."""

    name: str
    images: int
    sensitivity: float
    specificity: float
    auc: float

    @property
    def figures(self) -> tuple[float, ...]:
        """The values of FIGURES, in their order."""
        return self.sensitivity, self.specificity, self.auc


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How prompts did on labelled images.

    classes: C names, in the order of the matrix. confusion: counts [C, C]; row: the true class,
    column: the predicted class. auc: [C], nan if undefined. truth, shares, patients: class [N],
    probabilities [N, C] and number of the patient [N] of each image; empty if they are not known.
    folds: in so many parts the images were left out; 0 if they are test images.
    """

    classes: tuple[str, ...]
    confusion: Counts
    auc: Numbers
    truth: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    shares: Numbers = field(default_factory=lambda: np.zeros((0, 0)))
    patients: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    folds: int = 0

    @property
    def images(self) -> int:
        """Number of images that were classified."""
        return int(self.confusion.sum())

    @cached_property
    def right(self) -> Right:
        """Whether the prediction of each image is right, [N]."""
        rights: Right = self.shares.argmax(axis=1) == self.truth
        return rights

    @property
    def kind(self) -> str:
        """What the images are, in words."""
        return "images, each left out" if self.folds else "test images"

    @property
    def accuracy(self) -> float:
        """Share of all images whose prediction is right (0..1)."""
        return float(np.trace(self.confusion)) / self.images

    @property
    def chance(self) -> float:
        """The accuracy (0..1) of guessing: one of the classes, or always the most frequent one."""
        most = float(self.confusion.sum(axis=1).max()) / self.images
        return max(1 / len(self.classes), most)

    @property
    def patient_count(self) -> int | None:
        """Number of patients of the images; None if they are not known."""
        return len(np.unique(self.patients)) if self.patients.size else None

    @cached_property
    def _fractions(self) -> dict[str, tuple[Counts, Counts]]:
        """The images that count for a share, and those that it divides by, [C] each."""
        right, positives = np.diag(self.confusion), self.confusion.sum(axis=1)
        negatives = self.images - positives
        rejected = negatives - self.confusion.sum(axis=0) + right
        return {"sensitivity": (right, positives), "specificity": (rejected, negatives)}

    @cached_property
    def interval(self) -> Bounds:
        """The 95 % interval of the accuracy."""
        right = int(np.trace(self.confusion))
        if not self.patients.size:
            return wilson(right, self.images)
        counts, rights = (np.array([right]), np.array([self.images])), self.right[:, None]
        return self._bounds(*counts, rights, np.ones_like(rights))[0]

    @cached_property
    def bounds(self) -> Mapping[str, list[Bounds]]:
        """The 95 % intervals of each class's FIGURES; nan if unknown.

        Of a share: Wilson's, or by a bootstrap over patients. Of an AUC of two classes: by a
        bootstrap over patients or images; nan if the AUC is 0 or 1, which a bootstrap never leaves.
        """
        mine = named = np.zeros((0, len(self.classes)), np.bool_)
        if self.patients.size:
            mine = self.truth[:, None] == np.arange(len(self.classes))
            named = self.shares.argmax(axis=1)[:, None] == np.arange(len(self.classes))
        of_images = {"sensitivity": (mine & named, mine), "specificity": (~mine & ~named, ~mine)}
        return {
            **{name: self._bounds(*self._fractions[name], *of_images[name]) for name in of_images},
            "auc": [self._auc_bounds(at) for at in range(len(self.classes))],
        }

    def _bounds(
        self, parts: Counts, wholes: Counts, part_of: Right, whole_of: Right
    ) -> list[Bounds]:
        """Return the intervals of shares parts / wholes [K]; part_of, whole_of: by image [N, K].

        A bootstrap over patients who are all right, or all wrong, has no width; Wilson's interval
        of so many patients takes its place.
        """
        pairs = [(int(part), int(whole)) for part, whole in zip(parts, wholes, strict=True)]
        if not self.patients.size:
            return [wilson(part, whole) for part, whole in pairs]
        drawn = ratio_bootstrap(self.patients, part_of.astype(float), whole_of.astype(float))
        found = []
        for at, (part, whole) in enumerate(pairs):
            if 0 < part < whole:
                found.append((float(drawn[at, 0]), float(drawn[at, 1])))
            else:
                patients = len(np.unique(self.patients[whole_of[:, at]]))
                found.append(wilson(patients if part else 0, patients))
        return found

    def _auc_bounds(self, at: int) -> Bounds:
        if len(self.classes) != 2 or not self.truth.size or not 0.0 < self.auc[at] < 1.0:
            return math.nan, math.nan
        patients = self.patients if self.patients.size else np.arange(self.images)
        return auc_bootstrap(patients, self.truth == at, self.shares[:, at])

    @cached_property
    def by_class(self) -> tuple[ClassResult, ...]:
        """The figures of each class, in the order of `classes`."""
        sensitivity, specificity = (
            [part / whole if whole else math.nan for part, whole in np.transpose(counts).tolist()]
            for counts in self._fractions.values()
        )
        images = self._fractions["sensitivity"][1].tolist()
        figures = zip(
            self.classes, images, sensitivity, specificity, self.auc.tolist(), strict=True
        )
        return tuple(ClassResult(*each) for each in figures)

    @cached_property
    def mean(self) -> ClassResult:
        """The mean of each figure over the classes in which it is defined, and all images."""
        means = map(_mean, zip(*(result.figures for result in self.by_class), strict=True))
        return ClassResult("mean", self.images, *means)

    def confusions(self) -> list[tuple[int, str, str]]:
        """Return (images, true class, predicted class) of all mistakes, most frequent first."""
        wrong = self.confusion - np.diag(np.diag(self.confusion))
        mistakes = [
            (int(wrong[true, predicted]), self.classes[true], self.classes[predicted])
            for true, predicted in zip(*np.nonzero(wrong), strict=True)
        ]
        return sorted(mistakes, key=lambda mistake: -mistake[0])

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON types; an undefined figure is null."""
        return {
            "images": self.images,
            "patients": self.patient_count,
            "accuracy": self.accuracy,
            "accuracy_95": list(self.interval),
            "folds": self.folds,
            "mean": _known(asdict(self.mean)),
            "by_class": [
                _known(asdict(one) | {f"{name}_95": self.bounds[name][at] for name in FIGURES})
                for at, one in enumerate(self.by_class)
            ],
            "confusion": self.confusion.tolist(),
        }


def evaluation(
    classes: Sequence[str],
    truth: Sequence[int] | Counts,
    probabilities: npt.ArrayLike,
    patients: Sequence[str] = (),
) -> Evaluation:
    """Return the results by class of at least one image.

    truth: [N], the index in `classes` of each image's class. probabilities: [N, C]; if any of a
    class is not finite, the class has no AUC. patients: [N], of each image, if they are known.
    """
    from sklearn.metrics import roc_auc_score  # takes a second

    shares, labels = np.asarray(probabilities, np.float64), np.asarray(truth, np.int64)
    # scikit-learn's confusion_matrix warns on standard error if there is one class only.
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    predicted = shares.argmax(axis=1)
    np.add.at(matrix, (labels, predicted), 1)
    auc = np.full(len(classes), np.nan)
    for at in range(len(classes)):
        positive = labels == at
        if positive.any() and not positive.all() and np.isfinite(shares[:, at]).all():
            auc[at] = roc_auc_score(positive, shares[:, at])
    _, numbers = np.unique(np.array(patients, object), return_inverse=True)
    return Evaluation(tuple(classes), matrix, auc, labels, shares, numbers.astype(np.int64))


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def _known(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures and intervals as JSON types; undefined ones are null."""
    first = {name: one[0] if isinstance(one, tuple) else one for name, one in figures.items()}
    return {
        name: None if isinstance(first[name], float) and math.isnan(first[name]) else one
        for name, one in figures.items()
    }
