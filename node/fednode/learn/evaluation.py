"""Results by class: confusion matrix, sensitivity, specificity, AUC; each class against the rest.

For a class c, the images of c are positive and all other test images are negative. An image's
prediction is its most probable class; of equal probabilities the first class counts.

    sensitivity   positives that are predicted as c / positives. It is the accuracy on the images
                  of the class, also called its recall.
    specificity   negatives that are not predicted as c / negatives
    AUC           how often a positive has a higher probability of c than a negative, over all
                  pairs, ties counted half: the area under the ROC curve (Hanley and McNeil 1982)

A figure that divides by no image is undefined (nan), and no mean counts it: a class without test
images has no sensitivity and no AUC; if all test images are of one class, that class has no
specificity and no AUC. A mean over classes counts each class once, however many images it has. With
two classes, the sensitivity of one is the specificity of the other, and both have the same AUC.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fednode.learn.intervals import Right, wilson

FIGURES: Final = ("sensitivity", "specificity", "auc")
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of a class's sensitivity; nan without images."""
        if not self.images:
            return math.nan, math.nan
        return wilson(round(self.sensitivity * self.images), self.images)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How prompts did on labelled images.

    classes: C names, in the order of the matrix. confusion: counts [C, C]; row: the true class,
    column: the predicted class. auc: [C], nan if undefined. right: [N], whether each image's
    prediction is right; empty if only counts are known.
    """

    classes: tuple[str, ...]
    confusion: Counts
    auc: Numbers
    right: Right = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def images(self) -> int:
        """Number of test images."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """Share of all test images whose prediction is right (0..1)."""
        return float(np.trace(self.confusion)) / self.images

    @property
    def chance(self) -> float:
        """The accuracy (0..1) of guessing: one of the classes, or always the most frequent one."""
        most = float(self.confusion.sum(axis=1).max()) / self.images
        return max(1 / len(self.classes), most)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy."""
        return wilson(int(np.trace(self.confusion)), self.images)

    @cached_property
    def by_class(self) -> tuple[ClassResult, ...]:
        """The figures of each class, in the order of `classes`."""
        right = np.diag(self.confusion)
        positives, predicted = self.confusion.sum(axis=1), self.confusion.sum(axis=0)
        negatives = self.images - positives
        return tuple(
            ClassResult(
                name=name,
                images=int(positives[at]),
                sensitivity=_share(right[at], positives[at]),
                specificity=_share(negatives[at] - predicted[at] + right[at], negatives[at]),
                auc=float(self.auc[at]),
            )
            for at, name in enumerate(self.classes)
        )

    @cached_property
    def mean(self) -> ClassResult:
        """The mean of each figure over the classes in which it is defined, and all images."""
        means = {
            name: _mean([getattr(result, name) for result in self.by_class]) for name in FIGURES
        }
        return ClassResult(name="mean", images=self.images, **means)

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
            "accuracy": self.accuracy,
            "accuracy_95": list(self.interval),
            "mean": _finite(self.mean),
            "by_class": [
                {
                    **_finite(result),
                    "sensitivity_95": list(result.interval) if result.images else None,
                }
                for result in self.by_class
            ],
            "confusion": self.confusion.tolist(),
        }


def evaluation(
    classes: Sequence[str], truth: Sequence[int] | Counts, probabilities: npt.ArrayLike
) -> Evaluation:
    """Return the results by class of at least one image.

    truth: [N], the index in `classes` of each image's class. probabilities: [N, C]; if any of a
    class is not finite, the class has no AUC.
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
    return Evaluation(tuple(classes), matrix, auc, predicted == labels)


def _share(part: np.int64, whole: np.int64) -> float:
    return float(part) / float(whole) if whole else math.nan


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def _finite(result: ClassResult) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(result).items()
    }
