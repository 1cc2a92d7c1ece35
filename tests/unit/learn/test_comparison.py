"""The sentences on what a node gains: figures counted by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fednode.learn.evaluation import (
    NO_TESTS,
    Evaluation,
    no_better_than_chance,
    sentences,
)
from fednode.learn.intervals import paired_bootstrap

Rows = dict[str, Evaluation]


def result(share: float, labels: npt.NDArray[np.int64]) -> Evaluation:
    """Return results of 4 classes, where the first images are right and the others wrong."""
    right = np.arange(len(labels)) < share * len(labels)
    confusion = np.zeros((4, 4), np.int64)
    np.add.at(confusion, (labels, np.where(right, labels, (labels + 1) % 4)), 1)
    return Evaluation(("a", "b", "c", "d"), confusion, np.full(4, np.nan), right)


def made(**rows: float) -> Rows:
    labels = np.arange(200) % 4
    return {name.replace("_", "-"): result(share, labels) for name, share in rows.items()}


def test_the_sentence_compares_mesh_and_alone() -> None:
    one = made(mesh=0.515, alone=0.435, zero_shot=0.24)
    low, high = paired_bootstrap(one["mesh"].right, one["alone"].right)
    assert sentences({"own": one}) == [
        "mesh 51.5, alone 43.5, zero-shot 24.0 % of 200 test images; "
        "gain over training alone: +8.0 points "
        f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f})"
    ]
    assert 0 < low < 0.08 < high


def test_an_unknown_control_is_said_and_zero_shot_is_compared() -> None:
    one = made(mesh=0.25, zero_shot=0.5)
    (said,) = sentences({"own": one}, "training it failed")
    assert said.startswith(
        "mesh 25.0, zero-shot 50.0 % of 200 test images; gain over the hand-written prompt: "
    )
    assert said.endswith("); alone is unknown: training it failed")


def test_a_node_that_trains_alone_by_wish_is_compared_with_zero_shot() -> None:
    (said,) = sentences({"own": made(alone=0.5, zero_shot=0.5)}, "")
    assert said == (
        "alone 50.0, zero-shot 50.0 % of 200 test images; "
        "alone and zero-shot are right on the same images"
    )


def test_several_test_sets_are_named() -> None:
    one = made(mesh=0.5, alone=0.5, zero_shot=0.5)
    assert [said.split(": ")[0] for said in sentences({"base": one, "new": one})] == ["base", "new"]
    assert sentences({}) == [NO_TESTS]


def test_chance_is_said_where_nothing_is_better() -> None:
    (said,) = no_better_than_chance({"own": made(mesh=0.26, alone=0.25, zero_shot=0.2)})
    assert said.startswith(
        "no accuracy is better than chance: the best is 26.0 %, chance is 25.0 %"
    )
    assert "model.name" in said
    assert "data.shots" in said
    good = made(mesh=0.2, alone=0.4, zero_shot=0.2)
    assert no_better_than_chance({"own": good}) == no_better_than_chance({}) == []
    poor = made(mesh=0.25, zero_shot=0.25)
    assert no_better_than_chance({"own": poor, "new": good}) == []


def test_always_the_most_frequent_class_is_chance_too() -> None:
    labels = np.zeros(200, np.int64)
    labels[:40] = np.arange(40) % 4
    assert result(0.5, labels).chance == 0.85
    assert no_better_than_chance({"own": {"mesh": result(0.85, labels)}})
    assert not no_better_than_chance({"own": {"mesh": result(0.95, labels)}})
