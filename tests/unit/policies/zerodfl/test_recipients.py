"""Equations 1 and 2 of ZeroDFL, against exact fractions and by a chi-square test."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from fednode.policies.zerodfl import draw_recipients, probabilities
from fednode.testing import frame

COUNTS = {"a": 0, "b": 1, "c": 2, "d": 5, "e": 10}
DRAWS = 100_000
# 99.9 % points of the chi-square distribution, by degrees of freedom.
CRITICAL = {4: 18.467, 19: 43.820}


def exact(counts: Mapping[str, int], epsilon: Fraction) -> dict[str, Fraction]:
    """Equations 1 and 2 in rational numbers."""
    weights = {name: 1 / (Fraction(count) + epsilon) for name, count in counts.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def chi_square(seen: Mapping[Any, int], expected: Mapping[Any, Fraction]) -> float:
    total = sum(seen.values())
    return sum(
        (seen.get(cell, 0) - float(share * total)) ** 2 / float(share * total)
        for cell, share in expected.items()
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 1_000_000), Fraction(1, 2), Fraction(1)])
def test_probabilities_are_equation_2(epsilon: Fraction) -> None:
    found = probabilities(COUNTS, COUNTS, float(epsilon))
    for name, share in exact(COUNTS, epsilon).items():
        assert found[name] == pytest.approx(float(share), rel=1e-12)


def test_a_small_epsilon_takes_the_unchosen_first() -> None:
    found = probabilities({"a": 0, "b": 1, "c": 1}, "abc", 1e-6)
    assert found["a"] == pytest.approx(1 - 2e-6, abs=1e-8)


def test_only_those_who_can_be_chosen_have_a_share() -> None:
    found = probabilities(COUNTS, ["b", "zoe"], 1.0)
    assert found == pytest.approx({"b": 1 / 3, "zoe": 2 / 3})


def draws(uniform: bool = False) -> Counter[str]:
    """First recipients of 100,000 rounds, each with the generator that a node makes for it."""
    context = frame("zerodfl", name="me", peers=tuple(COUNTS), seed=7)
    counts = dict.fromkeys(COUNTS, 1) if uniform else COUNTS
    found: Counter[str] = Counter()
    for number in range(DRAWS):
        generator = context.random(number, "recipients")
        found.update(draw_recipients(counts, COUNTS, 1, 1.0, generator))
    return found


def test_100_000_draws_follow_equation_2() -> None:
    assert chi_square(draws(), exact(COUNTS, Fraction(1))) < CRITICAL[4]


def test_the_chi_square_test_can_fail() -> None:
    assert chi_square(draws(uniform=True), exact(COUNTS, Fraction(1))) > CRITICAL[4]


def test_two_recipients_follow_equation_2_renormalised_after_the_first() -> None:
    first = exact(COUNTS, Fraction(1))
    expected = {
        (one, two): first[one] * first[two] / (1 - first[one])
        for one, two in itertools.permutations(COUNTS, 2)
    }
    generator = random.Random(3)
    found = Counter(tuple(draw_recipients(COUNTS, COUNTS, 2, 1.0, generator)) for _ in range(DRAWS))
    assert chi_square(found, expected) < CRITICAL[19]


@pytest.mark.parametrize(("how_many", "expected"), [(0, 0), (3, 3), (5, 5), (9, 5)])
def test_recipients_are_distinct_and_no_more_than_there_are(how_many: int, expected: int) -> None:
    found = draw_recipients(COUNTS, COUNTS, how_many, 1e-6, random.Random(1))
    assert len(found) == len(set(found)) == expected


def test_nobody_to_choose_from() -> None:
    assert draw_recipients(COUNTS, [], 3, 1e-6, random.Random(1)) == []


def test_everyone_is_chosen_once_before_anyone_twice() -> None:
    counts = dict.fromkeys("abcdefgh", 0)
    for number in range(1, 9):
        for name in draw_recipients(counts, counts, 1, 1e-6, random.Random(number)):
            counts[name] += 1
    assert set(counts.values()) == {1}
