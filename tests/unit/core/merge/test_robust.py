"""Robust merges against numpy and closed forms, and against liars."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.core.merge.robust import combine, tame
from fednode.core.settings import MergeSettings
from fednode.core.types import Tensors

RULES = ("mean", "median", "trimmed", "krum", "center", "clip")
ROBUST = RULES[1:]


def contributed(rows: np.ndarray[Any, Any]) -> list[Tensors]:
    """Return one contribution a row [6]: two arrays of three numbers."""
    return [Tensors({"a": row[:3], "b": row[3:].reshape(1, 3)}) for row in rows]


def flat(tensors: Tensors) -> np.ndarray[Any, Any]:
    return np.concatenate([tensors["a"], tensors["b"].ravel()])


def merged(rule: str, rows: np.ndarray[Any, Any], weights: Any = None, **more: Any) -> Any:
    kept = Tensors({"a": np.zeros(3), "b": np.zeros((1, 3))})
    weights = [1.0] * len(rows) if weights is None else weights
    settings = MergeSettings(rule, **more)  # type: ignore[arg-type]
    return flat(combine(settings, contributed(rows), weights, kept))


ROWS = np.random.default_rng(7).normal(size=(7, 6)).astype(np.float32)


def test_the_mean_is_weighted() -> None:
    weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    expected = np.average(ROWS.astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(merged("mean", ROWS, weights), expected, rtol=1e-6)


def test_median_and_trimmed_mean_are_coordinate_wise() -> None:
    np.testing.assert_allclose(merged("median", ROWS), np.median(ROWS, axis=0), rtol=1e-6)
    expected = np.sort(ROWS, axis=0)[2:-2].mean(axis=0)
    np.testing.assert_allclose(merged("trimmed", ROWS, trim=0.2), expected, rtol=1e-5)
    np.testing.assert_allclose(merged("trimmed", ROWS[:1], trim=0.5), ROWS[0], rtol=1e-6)


def krum_by_loops(rows: np.ndarray[Any, Any], neighbours: int, kept: int) -> Any:
    """Return the mean of the rows with the smallest sums of distances to their neighbours."""
    scores = []
    for one in range(len(rows)):
        apart = sorted(
            float(np.sum((rows[one].astype(np.float64) - rows[other]) ** 2))
            for other in range(len(rows))
            if other != one
        )
        scores.append(sum(apart[:neighbours]))
    best = sorted(range(len(rows)), key=lambda one: scores[one])[:kept]
    return rows[sorted(best)].astype(np.float64).mean(axis=0)


def test_krum_is_the_mean_of_those_with_the_nearest_neighbours() -> None:
    """By loops, as Blanchard et al. define it: n - f - 2 neighbours, the n - f best.

    In these rows one neighbour more or less would choose other rows.
    """
    rows, liars = np.random.default_rng(10).normal(size=(7, 6)).astype(np.float32), 2
    near, kept = len(rows) - liars - 2, len(rows) - liars
    found = merged("krum", rows, liars=liars)
    np.testing.assert_allclose(found, krum_by_loops(rows, near, kept), rtol=1e-5)
    for wrong in (near - 1, near + 1):
        assert not np.allclose(found, krum_by_loops(rows, wrong, kept), rtol=1e-2)


def test_clipping_shortens_what_is_longer_than_the_lower_median() -> None:
    rows = np.zeros((2, 6), dtype=np.float32)
    rows[0, 0], rows[1, 1] = 10.0, 0.5
    np.testing.assert_allclose(merged("clip", rows)[:2], [0.25, 0.25])
    np.testing.assert_allclose(merged("clip", rows, [3.0, 1.0])[:2], [0.375, 0.125])


def test_centered_clipping_of_what_agrees_is_what_agrees() -> None:
    rows = np.tile(ROWS[0], (5, 1)) + 1e-6 * ROWS[:5]  # no two have equal bits
    np.testing.assert_allclose(merged("center", rows), ROWS[0], atol=1e-5)


def test_centered_clipping_takes_five_steps_of_the_lower_median_length() -> None:
    values, found = [Fraction(1), Fraction(2), Fraction(9)], Fraction(0)
    for _ in range(5):
        changes = [value - found for value in values]
        limit = sorted(map(abs, changes))[1]
        found += sum((max(-limit, min(limit, one)) for one in changes), Fraction(0)) / 3
    rows = np.zeros((3, 6), dtype=np.float32)
    rows[:, 0] = 1.0, 2.0, 9.0
    np.testing.assert_allclose(merged("center", rows), [float(found), 0, 0, 0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize("count", [2, 5])
def test_nodes_that_drifted_apart_agree_again_after_one_merge(rule: str, count: int) -> None:
    given_ = contributed(ROWS[:count])
    settings = MergeSettings(rule, liars=1)  # type: ignore[arg-type]
    held = [Tensors({"a": np.full(3, at), "b": np.full((1, 3), -at)}) for at in (0.0, 5.0)]
    ends = [combine(settings, given_, [1.0] * count, one, base_agrees=False) for one in held]
    assert ends[0].digest == ends[1].digest
    apart = [combine(settings, given_, [1.0] * count, one) for one in held]
    if count == 2:  # measured from where each began
        assert apart[0].digest != apart[1].digest


@pytest.mark.parametrize("rule", ROBUST)
def test_copies_of_a_contribution_count_once(rule: str) -> None:
    honest = 1.0 + 0.1 * ROWS[:5]
    copied = np.concatenate([honest, np.tile(np.zeros(6, dtype=np.float32), (4, 1))])
    once = np.concatenate([honest, np.zeros((1, 6), dtype=np.float32)])
    np.testing.assert_array_equal(merged(rule, copied, liars=2), merged(rule, once, liars=2))


@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize("lie", [1e6, -50.0])
def test_two_liars_of_seven_move_a_robust_merge_little_and_the_mean_far(
    rule: str, lie: float
) -> None:
    honest = 1.0 + 0.1 * ROWS[:5]
    rows = np.concatenate([honest, np.full((2, 6), lie, dtype=np.float32)])
    truth = honest.mean(axis=0)
    moved = np.linalg.norm(merged(rule, rows, liars=2, trim=0.3) - truth)
    assert moved < 0.75 * np.linalg.norm(truth)
    assert np.linalg.norm(merged("mean", rows) - truth) > 5 * moved


@pytest.mark.parametrize("rule", ROBUST)
def test_one_liar_of_two_moves_a_merge_no_further_than_the_other_went(rule: str) -> None:
    rows = np.stack([0.1 * ROWS[0], -1e6 * ROWS[1]])
    length = float(np.linalg.norm(rows[0]))
    assert float(np.linalg.norm(merged(rule, rows, liars=1))) <= 1.0001 * length
    assert float(np.linalg.norm(merged("mean", rows))) > 1e5 * length


def slots(*held: tuple[float, str, float]) -> list[Tensors]:
    """Return contributions of (what all hold, whose slot, what is in it)."""
    return [Tensors({"all": [one, 0.0], slot: [value, value]}) for one, slot, value in held]


def test_krum_believes_of_few_whom_it_chose_by_what_all_hold() -> None:
    """Of Fed-DPT's two owners of a slot one lies; their visual tokens tell which."""
    kept = Tensors({"all": np.zeros(2), **{one: np.zeros(2) for one in "wxyz"}})
    held = slots(
        (1.0, "x", 2.0), (1.1, "x", 4.0), (1.2, "y", 6.0), (0.9, "w", 7.0), (0.8, "w", 1.0),
        (-9.0, "y", -60.0), (8.0, "z", 80.0),
    )  # fmt: skip
    weights = [1.0, 3.0, 1.0, 1.0, 1.0, 50.0, 50.0]
    found = combine(MergeSettings("krum", liars=2), held, weights, kept)
    np.testing.assert_allclose(found["all"], [1.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(found["x"], [3.5, 3.5])  # weighted, and nothing is clipped
    np.testing.assert_allclose(found["y"], [6.0, 6.0])
    np.testing.assert_allclose(found["w"], [4.0, 4.0])
    np.testing.assert_array_equal(found["z"], [0.0, 0.0])  # of its one owner nothing is believed


def test_copies_of_what_all_hold_vouch_for_nobody() -> None:
    kept = Tensors({"all": np.zeros(2), **{one: np.zeros(2) for one in "xy"}})
    honest = [(1.0 + 0.1 * at, "x", 1.0) for at in range(5)]
    held = slots(*honest, (0.0, "y", 5.0), (0.0, "y", 7.0))
    found = combine(MergeSettings("krum", liars=2), held, [1.0] * 7, kept)
    np.testing.assert_array_equal(found["y"], [0.0, 0.0])


def test_where_nothing_is_held_by_all_two_contributions_are_clipped_to_the_shorter() -> None:
    kept = Tensors({"x": np.zeros(2), "y": np.zeros(2)})
    held = [Tensors({"x": [1.0, 0.0]}), Tensors({"x": [0.0, 9.0]}), Tensors({"y": [1.0, 1.0]})]
    found = combine(MergeSettings("krum"), held, [1.0] * 3, kept)
    np.testing.assert_allclose(found["x"], [0.5, 0.5])
    np.testing.assert_allclose(found["y"], [1.0, 1.0])


def test_an_even_number_is_clipped_to_the_lower_median() -> None:
    rows = np.diag([1.0, 2.0, 3.0, 1e9, 0.0, 0.0])[:4].astype(np.float32)
    np.testing.assert_allclose(merged("clip", rows)[:4], [0.25, 0.5, 0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@given(count=st.integers(1, 6), seed=st.integers(0, 99))
def test_a_merge_stays_finite_and_within_what_was_given(rule: str, count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    found = merged(rule, rows)
    assert np.isfinite(found).all()
    low, high = np.minimum(rows.min(axis=0), 0.0), np.maximum(rows.max(axis=0), 0.0)
    assert (found >= low - 1e-5).all()
    assert (found <= high + 1e-5).all()


@pytest.mark.parametrize("rule", RULES)
def test_names_are_merged_over_those_that_gave_them_and_the_rest_stays(rule: str) -> None:
    kept = Tensors({"a": [1.0], "b": [2.0], "c": [3.0]})
    given_ = [Tensors({"a": [5.0]}), Tensors({"a": [5.0], "b": [7.0]})]
    settings = MergeSettings(rule)  # type: ignore[arg-type]
    found = combine(settings, given_, [1.0, 1.0], kept)
    assert {name: float(one[0]) for name, one in found.items()} == {"a": 5.0, "b": 7.0, "c": 3.0}


def test_contributions_used_for_themselves_are_brought_near_their_middle() -> None:
    rows = [np.full((2, 2), value, dtype=np.float32) for value in (1.0, 1.1, 0.9, 100.0)]
    tamed = tame(MergeSettings("median"), rows)
    assert float(np.abs(tamed[3] - 1.05).max()) < 0.2
    assert tame(MergeSettings("mean"), rows)[3] is rows[3]
    assert tame(MergeSettings("median"), rows[:2]) == rows[:2]
