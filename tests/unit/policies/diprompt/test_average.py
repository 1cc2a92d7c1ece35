"""The weights of the beta moving average, against the Beta density itself."""

from __future__ import annotations

import math

import pytest

from fednode.policies.diprompt import alpha


def density(x: float, beta: float) -> float:
    constant = math.gamma(2 * beta) / math.gamma(beta) ** 2
    return float(constant * x ** (beta - 1) * (1 - x) ** (beta - 1))


@pytest.mark.parametrize("beta", [0.3, 0.5, 2.0])
def test_the_weights_are_the_beta_density_up_to_its_constant(beta: float) -> None:
    rounds = 6
    wanted = [density((index + 0.5) / (rounds + 1), beta) for index in range(rounds + 1)]
    found = [alpha(index, rounds, beta) for index in range(rounds + 1)]
    assert [x / found[0] for x in found] == pytest.approx([x / wanted[0] for x in wanted])


def test_below_one_the_first_and_the_last_rounds_count_most() -> None:
    weights = [alpha(index, 8, 0.5) for index in range(9)]
    assert weights == pytest.approx(weights[::-1])
    assert min(weights) == weights[4]
    assert weights[0] == pytest.approx(max(weights))


def test_with_beta_one_all_rounds_count_alike() -> None:
    assert {alpha(index, 5, 1.0) for index in range(6)} == {1.0}


def test_after_the_last_round_the_weights_repeat_from_the_first_round() -> None:
    assert [alpha(index, 3, 0.5) for index in (4, 5, 6, 7)] == [
        alpha(index, 3, 0.5) for index in (1, 2, 3, 1)
    ]
