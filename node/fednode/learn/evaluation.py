"""Results by class, and what a node gains over training alone. Imports no torch.

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

The control (policy `local`) trains alone, with the same images, seed and budget. It is measured on
the same test images as the mesh's prompts, so intervals of differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fednode.learn.intervals import Right, paired_bootstrap, wilson

FIGURES: Final = ("sensitivity", "specificity", "auc")
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
MESH: Final = "mesh"
ALONE: Final = "alone"
ZERO_SHOT: Final = "zero-shot"
OVER: Final = {ALONE: "training alone", ZERO_SHOT: "the hand-written prompt"}
NO_TESTS: Final = "whether the mesh helps is unknown: there are no test images (data.test)"


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


# What the mesh gains ------------------------------------------------------------------------------

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
        text = f"{shown} % of {ours.images} test images; {_difference(first, second, ours, others)}"
        why = f"; alone is unknown: {unknown}" if unknown and first == MESH else ""
        texts.append(f"{where}{text}{why}")
    return texts or [NO_TESTS]


def _difference(first: str, second: str, ours: Evaluation, others: Evaluation) -> str:
    """Return how two rows differ, in words."""
    if (ours.right == others.right).all():
        return f"{first} and {second} are right on the same images"
    low, high = paired_bootstrap(ours.right, others.right)
    gain = 100 * (ours.accuracy - others.accuracy)
    return (
        f"gain over {OVER[second]}: {gain:+.1f} points (95 % interval {100 * low:+.1f} to "
        f"{100 * high:+.1f})"
    )


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
        f"{100 * best.chance:.1f} %, and {best.images} test images do not tell them apart. The "
        "model may not know such images: try another model (model.name: ViT-B-16, or with "
        "model.pretrained one that was trained on images like these), or more images (data.shots)"
    ]
