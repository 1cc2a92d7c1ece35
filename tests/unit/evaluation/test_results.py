"""Results by class against counts by hand and against their definitions, pair by pair."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from fednode.evaluation.intervals import ratio_bootstrap, wilson
from fednode.evaluation.results import Evaluation, evaluation

NAMES = ("cyst", "stone", "tumor", "normal")


def test_figures_of_a_small_set_equal_those_by_hand() -> None:
    """Six images of three classes; no image is of the fourth class."""
    truth = [0, 0, 0, 1, 1, 2]
    found = evaluation(
        NAMES,
        truth,
        [
            [0.7, 0.1, 0.1, 0.1],  # a cyst, right
            [0.4, 0.3, 0.2, 0.1],  # a cyst, right
            [0.2, 0.5, 0.2, 0.1],  # a cyst that is called a stone
            [0.1, 0.6, 0.2, 0.1],  # a stone, right
            [0.4, 0.4, 0.1, 0.1],  # a stone; of equal probabilities the first class counts
            [0.1, 0.1, 0.1, 0.7],  # a tumor that is called normal
        ],
    )
    assert found.images == 6
    assert found.accuracy == pytest.approx(3 / 6)
    assert found.confusion.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    cyst, stone, tumor, normal = found.by_class
    assert (cyst.name, cyst.images) == ("cyst", 3)
    assert (cyst.sensitivity, cyst.specificity) == pytest.approx((2 / 3, 2 / 3))
    # Pairs of a cyst and another image: .7 beats .1, .4, .1; .4 beats two and ties; .2 beats two.
    assert cyst.auc == pytest.approx((3 + 2.5 + 2) / 9)
    assert (stone.sensitivity, stone.specificity) == pytest.approx((1 / 2, 3 / 4))
    assert stone.auc == pytest.approx((4 + 3) / 8)
    assert (tumor.sensitivity, tumor.specificity) == pytest.approx((0.0, 1.0))
    # The tumor's .1 ties with the first cyst and the second stone; the three others have .2.
    assert tumor.auc == pytest.approx((0.5 + 0.5) / 5)
    assert normal.images == 0
    assert math.isnan(normal.sensitivity)
    assert math.isnan(normal.auc)
    assert normal.specificity == pytest.approx(5 / 6)
    assert found.mean.sensitivity == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert found.mean.specificity == pytest.approx((2 / 3 + 3 / 4 + 1 + 5 / 6) / 4)
    assert found.mean.auc == pytest.approx((cyst.auc + stone.auc + tumor.auc) / 3)
    assert found.confusions() == [
        (1, "cyst", "stone"), (1, "stone", "cyst"), (1, "tumor", "normal")
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_figures_equal_their_definitions(seed: int) -> None:
    """Counted over images and over pairs of images, in exact fractions."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, 40)
    shares = draw.dirichlet([1.0] * 4, 40).round(1)  # many ties
    found = evaluation(NAMES, truth, shares)
    predicted = [max(range(4), key=lambda at, row=row: (row[at], -at)) for row in shares]  # type: ignore[misc]
    assert found.accuracy == pytest.approx(sum(truth == predicted) / 40)
    for at, one in enumerate(found.by_class[:3]):
        positive = [i for i in range(40) if truth[i] == at]
        negative = [i for i in range(40) if truth[i] != at]
        assert one.images == len(positive)
        hits = sum(predicted[i] == at for i in positive)
        alarms = sum(predicted[i] == at for i in negative)
        assert one.sensitivity == pytest.approx(hits / len(positive))
        assert one.specificity == pytest.approx(1 - alarms / len(negative))
        pairs = list(itertools.product(shares[positive, at], shares[negative, at]))
        won = sum(Fraction(1 if a > b else 0) + Fraction(int(a == b), 2) for a, b in pairs)
        assert one.auc == pytest.approx(float(won / len(pairs)))


def test_what_is_undefined_is_no_number_and_no_json_number() -> None:
    found = evaluation(("a", "b"), [0, 0], [[0.9, 0.1], [0.2, 0.8]])
    a, b = found.by_class
    assert (a.sensitivity, b.specificity) == (0.5, 0.5)
    assert all(math.isnan(one) for one in (a.specificity, a.auc, b.sensitivity, b.auc))
    tree = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert tree["by_class"][1] == {
        "name": "b", "images": 0, "sensitivity": None, "specificity": 0.5, "auc": None,
            "sensitivity_95": None, "specificity_95": list(wilson(1, 2)), "auc_95": None,
    }  # fmt: skip
    assert tree["mean"]["auc"] is None
    assert tree["mean"]["sensitivity"] == tree["accuracy"] == 0.5
    assert tree["confusion"] == [[1, 1], [0, 0]]
    unknown = evaluation(("a", "b"), [0, 1], [[np.nan, np.nan], [0.2, 0.8]])
    assert unknown.images == 2
    assert np.isnan(unknown.auc).all()
    counts = Evaluation(("a", "b"), np.array([[7, 1], [2, 10]]), np.full(2, np.nan))
    assert counts.interval == wilson(17, 20)


def test_intervals_count_patients_where_they_are_known() -> None:
    """Sixty images of ten patients: a class's interval is as wide as ten patients make it."""
    draw = np.random.default_rng(1)
    truth = np.repeat(np.arange(10) % 2, 6)
    patients = [f"p{at // 6}" for at in range(60)]
    shares = 0.3 + 0.4 * truth + draw.normal(scale=0.35, size=10).repeat(6)
    probabilities = np.column_stack([1 - shares, shares])
    single = evaluation(("healthy", "ill"), truth, probabilities)
    found = evaluation(("healthy", "ill"), truth, probabilities, patients)
    assert (single.patient_count, found.patient_count) == (None, 10)
    assert found.accuracy == single.accuracy
    assert not found.right.all()
    for figure, name in enumerate(("sensitivity", "specificity", "auc")):
        value = found.by_class[1].figures[figure]
        low, high = found.bounds[name][1]
        assert low < value < high
        assert single.bounds[name][1][1] - single.bounds[name][1][0] < high - low
    assert found.bounds["sensitivity"][1] == found.bounds["specificity"][0]
    right = found.right.astype(float)[:, None]
    numbers = np.arange(60) // 6
    expected = ratio_bootstrap(numbers, right, np.ones((60, 1)))[0]
    assert found.interval == pytest.approx(tuple(expected))
    ill = (truth == 1).astype(float)[:, None]
    expected = ratio_bootstrap(numbers, ill * right, ill)[0]
    assert found.bounds["sensitivity"][1] == pytest.approx(tuple(expected))
    tree = json.loads(json.dumps(found.as_json()))
    assert tree["patients"] == 10
    assert tree["by_class"][1]["auc_95"] == list(found.bounds["auc"][1])


def test_patients_who_are_all_right_leave_an_interval_of_their_number() -> None:
    truth, patients = [0] * 6 + [1] * 6, ["a"] * 3 + ["b"] * 3 + ["c"] * 6
    found = evaluation(("healthy", "ill"), truth, np.eye(2)[truth], patients)
    assert found.interval == wilson(3, 3)
    assert found.bounds["sensitivity"] == [wilson(2, 2), wilson(1, 1)]
    assert all(math.isnan(low) for low, _ in found.bounds["auc"])
    assert found.as_json()["by_class"][0]["auc_95"] is None
