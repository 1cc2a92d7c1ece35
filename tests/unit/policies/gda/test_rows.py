"""The arrays of policy gda, and which of a peer's are refused."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.core.types import Tensors
from fednode.learn.ratio import HEATS, RATIOS
from fednode.policies.gda import rows

GOOD = np.array([[2.0, 1.0, 1.0], [1.0, 0.0, -1.0]], np.float32)


def test_the_tables_have_the_shape_of_ratios_and_temperatures() -> None:
    assert (len(RATIOS), len(HEATS)) == rows.TABLE


def test_rows_follow_their_classes() -> None:
    found = rows.aligned(GOOD, ("b", "d"), ("a", "b", "c", "d"))
    assert np.array_equal(found[[1, 3]], GOOD)
    assert not found[[0, 2]].any()


def test_a_triangle_comes_back_as_its_square() -> None:
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    square = x.T @ x
    assert np.array_equal(
        rows.squared(rows.triangle(square)), np.triu(square) + np.triu(square, 1).T
    )


@pytest.mark.parametrize(
    ("change", "classes", "words"),
    [
        (GOOD, ("a",), "rows are"),
        (GOOD, ("b", "a"), "not sorted"),
        (GOOD * [[0.5], [1.0]], ("a", "b"), ""),
        (np.add(GOOD, np.array([[0.5, 0, 0], [0, 0, 0]])), ("a", "b"), "not a whole number from 1"),
        (GOOD * [[0, 1, 1], [1, 1, 1]], ("a", "b"), "not a whole number from 1"),
        (GOOD * [[1, 2, 2], [1, 1, 1]], ("a", "b"), "longer than the number of its images"),
        (GOOD * [[-1, 1, 1], [1, 1, 1]], ("a", "b"), "not a whole number from 1"),
    ],
)
def test_rows_that_no_images_give_are_refused(
    change: np.ndarray, classes: tuple[str, ...], words: str
) -> None:
    found = rows.rows_fault(change.astype(np.float32), classes, 3, 1.0)
    assert (words in found) if words else not found


def test_moments_that_no_images_give_are_refused() -> None:
    x = np.array([[0.6, 0.8], [1.0, 0.0]])
    moment = rows.triangle((x.T @ x).astype(np.float32))
    assert not rows.moment_fault(moment, 2.0, 2)
    assert "trace" in rows.moment_fault(10 * moment, 2.0, 2)
    assert "trace" in rows.moment_fault(-moment, 2.0, 2)
    assert "numbers" in rows.moment_fault(moment, 2.0, 3)


def test_tables_are_bounded() -> None:
    zeros = dict.fromkeys(rows.TABLES, np.zeros(rows.TABLE))
    assert not rows.table_fault(Tensors(zeros))
    assert "between 0 and 20" in rows.table_fault(Tensors({**zeros, "mesh": zeros["mesh"] - 1}))
    assert "between 0 and 20" in rows.table_fault(Tensors({**zeros, "mesh": zeros["mesh"] + 21}))
    assert "the table mesh is" in rows.table_fault(Tensors({**zeros, "mesh": np.zeros((2, 2))}))
    assert "there are personal" in rows.table_fault(Tensors({"mesh": zeros["mesh"]}))


def test_the_least_sum_over_nodes_wins_and_no_vote_is_no_vote() -> None:
    one, two, none = (np.full(rows.TABLE, value, np.float32) for value in (5.0, 5.0, 0.0))
    one[2, 3], two[2, 3], two[6, 16] = 1.0, 4.0, 3.5
    tables = [
        {"personal": one, "mesh": two, "unseen": none},
        {"personal": two, "mesh": two, "unseen": none},
    ]
    assert rows.choice(tables) == [(2, 3), (6, 16), (6, 16)]
    liar = {"personal": np.where(one == 1.0, 1e9, 0.0).astype(np.float32)}
    assert rows.best([one, liar["personal"]]) != (2, 3)
    assert rows.best([one, one, liar["personal"] * 0 + 20.0]) == (2, 3)
    assert rows.best([]) == (0, 0)
