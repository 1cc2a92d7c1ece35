"""What a node gains: the mesh's prompts, the control's and the hand-written prompt, compared.

The control (policy `local`) trains alone, with the same images, seed and budget. All are measured
on the same test images, so intervals of differences are paired (fednode.learn.intervals).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fednode.learn.evaluation import Evaluation
from fednode.learn.intervals import paired_bootstrap

MESH: Final = "mesh"
ALONE: Final = "alone"
ZERO_SHOT: Final = "zero-shot"
OVER: Final = {ALONE: "training alone", ZERO_SHOT: "the hand-written prompt"}
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
