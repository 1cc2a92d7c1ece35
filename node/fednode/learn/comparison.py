"""What a node gains: the mesh's prompts, the control's and the hand-written prompt, compared.

The control (policy `local`) trains alone, with the same images, seed and budget. All are measured
on the same test images, so intervals of differences are paired (fednode.learn.intervals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fednode.learn.intervals import Right, paired_bootstrap, wilson

MESH: Final = "mesh"
ALONE: Final = "alone"
ZERO_SHOT: Final = "zero-shot"
OVER: Final = {ALONE: "training alone", ZERO_SHOT: "the hand-written prompt"}
NO_TESTS: Final = "whether the mesh helps is unknown: there are no test images (data.test)"


@dataclass(frozen=True, eq=False)
class Compared:
    """What came of one test set.

    labels: [n], the class of each image. classes: their number. rows: by MESH, ALONE and ZERO_SHOT,
    in this order, as far as known: which images are right.
    """

    labels: npt.NDArray[np.int64]
    classes: int
    rows: Mapping[str, Right]

    @property
    def chance(self) -> float:
        """The accuracy (0..1) of guessing: one of the classes, or always the most frequent one."""
        return max(1 / self.classes, float(np.bincount(self.labels).max()) / len(self.labels))


def sentences(tests: Mapping[str, Compared], unknown: str = "") -> list[str]:
    """Return a sentence for each test set ("own", "base", "new").

    The difference is that between the first two rows. unknown: why the control is not known.
    """
    texts = []
    for test, compared in tests.items():
        (first, ours), (second, others), *_ = compared.rows.items()
        count = len(ours)
        shown = ", ".join(
            f"{name} {100 * right.mean():.1f}" for name, right in compared.rows.items()
        )
        where = f"{test}: " if len(tests) > 1 else ""
        text = f"{shown} % of {count} test images; {_difference(first, second, ours, others)}"
        why = f"; alone is unknown: {unknown}" if unknown and first == MESH else ""
        texts.append(f"{where}{text}{why}")
    return texts or [NO_TESTS]


def _difference(first: str, second: str, ours: Right, others: Right) -> str:
    """Return how two rows differ, in words."""
    if (ours == others).all():
        return f"{first} and {second} are right on the same images"
    low, high = paired_bootstrap(ours, others)
    gain = 100 * float(ours.mean() - others.mean())
    return (
        f"gain over {OVER[second]}: {gain:+.1f} points (95 % interval {100 * low:+.1f} to "
        f"{100 * high:+.1f})"
    )


def no_better_than_chance(tests: Mapping[str, Compared]) -> list[str]:
    """Return a sentence if no row is better than chance on any test set; else nothing.

    A row is better if the interval of its accuracy lies above chance.
    """
    beaten: list[tuple[float, float, int]] = []
    for compared in tests.values():
        count = len(compared.labels)
        if any(
            wilson(int(right.sum()), count)[0] > compared.chance for right in compared.rows.values()
        ):
            return []
        beaten.append(
            (max(float(right.mean()) for right in compared.rows.values()), compared.chance, count)
        )
    if not beaten:
        return []
    best, chance, count = max(beaten)
    return [
        f"no accuracy is better than chance: the best is {100 * best:.1f} %, chance is "
        f"{100 * chance:.1f} %, and {count} test images do not tell them apart. The model may not "
        "know such images: try another model (model.name: ViT-B-16, or with model.pretrained one "
        "that was trained on images like these), or more images (data.shots)"
    ]
