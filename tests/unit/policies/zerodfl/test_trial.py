"""Received rows on trial: which stay, and what is measured next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fednode.policies.zerodfl.trial import Trial

ROWS = np.zeros((3, 2), dtype=np.float32)


def row(value: float) -> Any:
    return np.full(2, value, dtype=np.float32)


def test_rows_are_tried_one_by_one_on_top_of_those_that_stayed() -> None:
    trial = Trial(ROWS, 1.0, {2: row(3.0), 0: row(1.0), 1: row(2.0)}, rise=0.1)
    losses = {0: 1.05, 1: 2.0, 2: 1.1}
    for position in (0, 1, 2):
        tried = trial.candidate()
        assert tried is not None
        np.testing.assert_array_equal(tried[position], row(position + 1.0))
        np.testing.assert_array_equal(tried[1], row(2.0) if position == 1 else row(0.0))
        trial = trial.judged({"validation_loss": losses[position]})
    assert trial.candidate() is None
    assert (trial.stayed, trial.refused) == (2, 1)
    np.testing.assert_array_equal(trial.rows[:, 0], [1.0, 0.0, 3.0])


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1.2])
def test_a_loss_that_is_no_number_admits_nothing(loss: float) -> None:
    trial = Trial(ROWS, 1.0, {0: row(1.0)}, rise=0.1)
    assert trial.judged({"validation_loss": loss}).refused == 1
    assert trial.judged({}).refused == 1


def test_an_unknown_loss_is_measured_before_the_first_row() -> None:
    trial = Trial(ROWS, None, {0: row(1.0)}, rise=0.1)
    np.testing.assert_array_equal(trial.candidate(), ROWS)
    measured = trial.judged({"validation_loss": 2.0})
    assert (measured.loss, measured.stayed, measured.refused) == (2.0, 0, 0)
    assert sorted(measured.left) == [0]
    assert measured.judged({"validation_loss": 2.05}).stayed == 1
