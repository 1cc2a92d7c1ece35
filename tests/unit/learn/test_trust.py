"""Peers whose class means do not fit their names are left out, and no honest ones."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.learn.gaussian import Floats, Sums
from fednode.learn.trust import at_most, doubted

CLASSES = ("ant", "bee", "cow", "dog")


def sums(*order: int, classes: tuple[str, ...] = CLASSES) -> Sums:
    """Return sums whose class at place k looks like the class order[k]."""
    means = np.eye(4)[list(order)]
    return Sums(classes, np.full(len(order), 5.0), 5.0 * means)


def nearest(x: Floats) -> Floats:
    """Return the logits of a classifier that is always right."""
    return x


def test_a_peer_that_turned_its_names_round_is_doubted_and_an_honest_one_is_not() -> None:
    own = sums(0, 1, 2, 3)
    peers = {"honest": sums(0, 1, 2, 3), "liar": sums(1, 2, 3, 0), "mixed": sums(0, 1, 3, 2)}
    assert doubted(own, peers, nearest, 0.9) == ("liar",)


def test_a_classifier_that_knows_little_doubts_nobody() -> None:
    assert doubted(sums(0, 1, 2, 3), {"b": sums(1, 2, 3, 0)}, nearest, 0.25) == ()
    assert doubted(sums(0, 1, 2, 3), {"b": sums(1, 2, 3, 0)}, nearest, 0.7) == ("b",)


def test_peers_with_few_common_classes_are_not_judged() -> None:
    own = sums(0, 1, 2, 3)
    strange = sums(3, 0, classes=("ant", "zebra"))
    assert doubted(own, {"b": strange}, nearest, 1.0) == ()


@pytest.mark.parametrize(("right", "expected"), [(0, 0.25), (1, 0.75), (2, 1.0)])
def test_the_chance_of_few_right_names(right: int, expected: float) -> None:
    assert at_most(right, 2, 0.5) == pytest.approx(expected)
