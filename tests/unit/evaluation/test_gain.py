"""The sentences on what a node gains: figures counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.evaluation.gain import (
    FOLDS,
    NO_TESTS,
    folds_of,
    gain_over,
    no_better_than_chance,
    sentences,
)
from fednode.evaluation.results import Evaluation, evaluation

Rows = dict[str, Evaluation]


def result(share: float, labels: npt.NDArray[np.int64]) -> Evaluation:
    """Return results of 4 classes, where the first images are right and the others wrong."""
    right = np.arange(len(labels)) < share * len(labels)
    return evaluation("abcd", labels, np.eye(4)[np.where(right, labels, (labels + 1) % 4)])


def made(**rows: float) -> Rows:
    labels = np.arange(200) % 4
    return {name.replace("_", "-"): result(share, labels) for name, share in rows.items()}


def test_the_sentence_compares_mesh_and_alone() -> None:
    one = made(mesh=0.515, alone=0.435, zero_shot=0.24)
    gain = gain_over(one["mesh"], one["alone"])
    (low, high), (least, most) = gain.accuracy_95, gain.balanced_95
    assert sentences({"own": one}) == [
        "mesh 51.5, alone 43.5, zero-shot 24.0 % of 200 test images; "
        "gain over training alone: +8.0 points "
        f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f}), mean over classes +8.0 points "
        f"(95 % interval {100 * least:+.1f} to {100 * most:+.1f}): the mesh helps"
    ]
    assert 0 < low < 0.08 < high
    assert 0 < least < 0.08 < most


def test_the_counts_of_a_gain_are_over_patients_where_they_are_known() -> None:
    labels = np.arange(12) % 2
    one = pair(gained=5, lost=2, images=12, labels=labels)
    assert gain_over(one["mesh"], one["alone"]).counts == (12, 3, 7)
    patients = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2])  # +3; +2 - 2; 0
    rows = [replace(one[name], patients=patients) for name in ("mesh", "alone")]
    assert gain_over(*rows).counts == (12, 3, 9)


def pair(gained: int, lost: int, images: int, labels: npt.NDArray[np.int64]) -> Rows:
    """Return two rows that differ on the first images: some gained, then some lost."""
    right = {"mesh": np.zeros(images, np.bool_), "alone": np.zeros(images, np.bool_)}
    right["mesh"][:gained] = right["alone"][gained : gained + lost] = True
    return {name: made_of(rights, labels) for name, rights in right.items()}


def made_of(right: npt.NDArray[np.bool_], labels: npt.NDArray[np.int64]) -> Evaluation:
    return evaluation("ab", labels, np.eye(2)[np.where(right, labels, 1 - labels)])


@pytest.mark.parametrize(
    ("gained", "lost", "images", "verdict"),
    [
        (9, 8, 35, "cannot tell: 35 images; a difference of 10 points needs about 400"),
        (20, 20, 500, "no difference found, and one of 10 points would show on these images"),
        (1, 0, 30, "cannot tell: 30 images; a difference of 10 points needs about 70"),
        (1, 0, 80, "no difference found, and one of 10 points would show on these images"),
        (30, 2, 60, "the mesh helps"),
        (2, 30, 60, "the mesh harms: training alone is better"),
        (5, 0, 5, "cannot tell: 5 images; a difference of 10 points needs about 800"),
    ],
)
def test_the_verdict_is_in_words(gained: int, lost: int, images: int, verdict: str) -> None:
    rows = pair(gained, lost, images, np.arange(images) % 2)
    assert gain_over(rows["mesh"], rows["alone"]).verdict == verdict
    (said,) = sentences({"own": rows})
    assert said.endswith(f": {verdict}")


def test_frequent_and_rare_classes_may_disagree() -> None:
    """Of 160 frequent images the mesh loses 40; of 20 rare ones it gains 15."""
    labels = np.repeat([0, 1], [160, 20])
    alone, mesh = labels == 0, labels == 1
    mesh[:120] = True
    mesh[175:] = False
    gain = gain_over(made_of(mesh, labels), made_of(alone, labels))
    assert gain.accuracy == pytest.approx((15 - 40) / 180)
    assert gain.balanced == pytest.approx((15 / 20 - 40 / 160) / 2)
    assert gain.verdict == "the mesh helps with rare classes and harms the others"


def test_the_mean_over_classes_counts_if_each_class_has_twenty_images() -> None:
    """The mesh gains 15 rare images and loses as many frequent ones."""
    for rare in (19, 20):
        labels = np.repeat([0, 1], [160, rare])
        alone, mesh = labels == 0, np.arange(160 + rare) >= 15
        mesh[175:] = False
        gain = gain_over(made_of(mesh, labels), made_of(alone, labels))
        assert gain.smallest == rare
        assert gain.accuracy_95[0] < 0 < gain.balanced_95[0]
        assert gain.verdict.startswith("the mesh helps" if rare == 20 else "no difference found")
    of_patients = [
        replace(made_of(right, labels), patients=np.arange(180) // 2) for right in (mesh, alone)
    ]
    assert gain_over(*of_patients).smallest == 10


def test_patients_count_once_however_many_images_they_have() -> None:
    labels, right = np.arange(240) % 2, np.zeros(240, np.bool_)
    right[:40] = True
    ours, others = made_of(right, labels), made_of(~right & False, labels)
    assert gain_over(ours, others).verdict == "the mesh helps"
    patients = np.arange(240) // 60
    few = gain_over(replace(ours, patients=patients), replace(others, patients=patients))
    assert few.differ == 1
    assert few.verdict.startswith("cannot tell: 240 images; a difference of 10 points needs")


def test_as_many_patients_as_images_are_needed() -> None:
    """Of 900 images one differs: no difference if they are of 90 patients, but not if of 30."""
    rows = pair(1, 0, 900, np.arange(900) % 2)
    verdicts = []
    for count in (90, 30):
        known = [replace(row, patients=np.arange(900) % count) for row in rows.values()]
        verdicts.append(gain_over(*known).verdict)
    assert verdicts[0].startswith("no difference found")
    assert verdicts[1].endswith("900 images; a difference of 10 points needs about 2,000")


IMAGE = st.tuples(st.integers(0, 4), st.integers(0, 12), st.booleans())


@given(st.lists(IMAGE, min_size=1, max_size=80))
def test_folds_divide_no_patient_and_leave_each_class_something(
    images: list[tuple[int, int, bool]],
) -> None:
    labels = [label for label, _, _ in images]
    patients = [f"p{patient}" for _, patient, _ in images]
    trained = [trains for _, _, trains in images]
    folds = folds_of(labels, patients, trained)
    assert set(folds.tolist()) <= set(range(-1, FOLDS))
    for patient in set(patients):
        assert len(set(folds[np.array(patients) == patient].tolist())) == 1
    for label in set(labels):
        mine = np.array(labels) == label
        trains = folds[mine & trained].tolist()
        assert len(set(trains)) != 1 or trains[0] == -1


def test_images_that_train_are_spread_evenly() -> None:
    """Every tenth of 200 images trains, so turns of all images would put them into one fold."""
    trained = np.arange(200) % 10 == 0
    folds = folds_of([0] * 200, [str(at) for at in range(200)], trained.tolist())
    assert np.bincount(folds[trained]).tolist() == [2] * FOLDS
    assert np.bincount(folds).tolist() == [20] * FOLDS


def test_an_unknown_control_is_said_and_zero_shot_is_compared() -> None:
    one = made(mesh=0.25, zero_shot=0.5)
    (said,) = sentences({"own": one}, "training it failed")
    assert said.startswith(
        "mesh 25.0, zero-shot 50.0 % of 200 test images; gain over the hand-written prompt: "
    )
    assert said.endswith("); alone is unknown: training it failed")


def test_a_node_that_trains_alone_by_wish_is_compared_with_zero_shot() -> None:
    assert sentences({}) == [NO_TESTS]
    one = made(alone=0.5, zero_shot=0.5)
    assert [said.split(": ")[0] for said in sentences({"base": one, "new": one})] == ["base", "new"]
    (said,) = sentences({"own": one}, "")
    assert said == (
        "alone 50.0, zero-shot 50.0 % of 200 test images; "
        "alone and zero-shot are right on the same images"
    )


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
    # Always the most frequent class is chance, too.
    labels = np.zeros(200, np.int64)
    labels[:40] = np.arange(40) % 4
    assert result(0.5, labels).chance == 0.85
    assert no_better_than_chance({"own": {"mesh": result(0.85, labels)}})
    assert not no_better_than_chance({"own": {"mesh": result(0.95, labels)}})
