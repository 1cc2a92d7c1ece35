"""Votes on contributions: ballots, medians, what liars can do with theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.core import jury
from node.core.method import Contribution
from node.core.types import Tensors

NAMES = "abcdefg"


def candidates(names: Sequence[str] = NAMES) -> list[Contribution]:
    return [Contribution(name, Tensors({"x": [float(at)]}), 1) for at, name in enumerate(names)]


def ballot(votes: Mapping[str, float]) -> Tensors:
    return Tensors({name: [vote] for name, vote in votes.items()})


def let_in(ballots: Sequence[Mapping[str, float]], rise: float = 0.05, names: str = NAMES) -> str:
    found = jury.admitted(candidates(names), [ballot(one) for one in ballots], rise)
    return "".join(one.sender for one in found)


def tried(trial: jury.Trial, loss: Mapping[float, float]) -> list[float]:
    """Measure all that a trial asks for; return what it asked for, in order."""
    asked: list[float] = []
    while (one := trial.candidate()) is not None:
        asked.append(float(one["x"][0]))
        trial.note({"validation_loss": loss[asked[-1]]} if asked[-1] in loss else {})
    return asked


def trial(names: str = "abc") -> jury.Trial:
    """Return a trial of contributions 0, 1, 2 over a state of 9."""
    return jury.Trial(candidates(names), lambda one: one[0].tensors if one else Tensors({"x": [9]}))


def test_each_stage_has_its_votes_after_it() -> None:
    assert jury.steps(("prompts", "aggregators")) == (
        "prompts",
        "votes.prompts",
        "aggregators",
        "votes.aggregators",
    )


def test_a_vote_is_how_much_the_loss_rises_over_what_it_is_without_any() -> None:
    one = trial()
    assert tried(one, {9.0: 2.0, 0.0: 1.5, 1.0: 2.25, 2.0: float("nan")}) == [9.0, 0.0, 1.0, 2.0]
    votes = {name: float(vote[0]) for name, vote in one.votes().items()}
    assert votes == {"a": -0.5, "b": 0.25, "c": jury.LOSS_MAX}


def test_a_loss_beyond_all_bounds_is_a_bounded_vote() -> None:
    one = trial("a")
    tried(one, {9.0: 1.0, 0.0: float("inf")})
    assert float(one.votes()["a"][0]) == jury.LOSS_MAX


@pytest.mark.parametrize("kept", [{}, {9.0: float("nan")}])
def test_who_cannot_measure_is_not_asked_twice_and_abstains(kept: dict[float, float]) -> None:
    one = trial()
    assert tried(one, {**kept, 0.0: 1.0}) == [9.0]
    assert one.votes() == Tensors()


def test_what_harms_most_nodes_is_left_out() -> None:
    honest = dict.fromkeys("abcde", -0.2)
    assert let_in([{**honest, "f": 1.0, "g": 0.04}] * 7) == "abcdeg"


def test_in_a_round_that_harms_by_all_contributions_the_middle_ones_stay() -> None:
    """PLAN's local prompts overfit; training must not stop over that."""
    assert let_in([{"a": 0.3, "b": 0.4, "c": 0.5, "d": 2.0, "e": 3.0}], names="abcde") == "abc"


def test_nobody_is_let_in_on_no_vote() -> None:
    assert let_in([]) == ""
    assert let_in([], names="a") == "a", "the only one is the middle one"
    assert let_in([{"a": -1.0}]) == "a", "of others nothing is known"


def test_a_vote_on_who_said_nothing_counts_for_nothing() -> None:
    assert let_in([{"a": -1.0, "b": -1.0, "zz": -20.0}], names="ab") == "ab"


def test_the_score_is_the_median_of_the_votes() -> None:
    """By hand: of 7 votes on f the fourth is 0.9; the middle score of a to g is -0.2."""
    votes = [0.9, 0.01, 1.0, 0.02, 2.0, 3.0, 0.03]
    assert "f" not in let_in([{**dict.fromkeys("abcdeg", -0.2), "f": one} for one in votes])
    votes[0] = 0.04
    assert "f" in let_in([{**dict.fromkeys("abcdeg", -0.2), "f": one} for one in votes])


@given(
    seed=st.integers(0, 10_000),
    lies=st.lists(st.floats(-20, 20, width=32), min_size=14, max_size=14),
)
def test_two_of_seven_voters_change_no_clear_verdict(seed: int, lies: list[float]) -> None:
    """Honest nodes agree in which half of the axis a contribution is: no lie turns that round."""
    chance = np.random.default_rng(seed)
    good, bad = "abcde", "fg"
    ballots: list[dict[str, float]] = [
        {
            **{name: float(chance.uniform(-1.0, 0.0)) for name in good},
            **{name: float(chance.uniform(0.5, 5.0)) for name in bad},
        }
        for _ in range(5)
    ]
    ballots += [dict(zip(NAMES, lies[at : at + 7], strict=True)) for at in (0, 7)]
    assert let_in(ballots) == good


def told(*vectors: Sequence[float]) -> list[Contribution]:
    """Return contributions of two arrays each, of two numbers and one."""
    return [
        Contribution(name, Tensors({"x": one[:2], "y": one[2:]}), 1)
        for name, one in zip(NAMES, vectors, strict=False)
    ]


def flat(one: Contribution) -> list[float]:
    return [*map(float, one.tensors["x"]), *map(float, one.tensors["y"])]


ORIGIN = {"x": np.array([1.0, 0.0]), "y": np.array([2.0])}


def test_contributions_are_clipped_to_the_median_length_around_the_origin() -> None:
    """By hand: lengths 1, 3 and 6 over both arrays, so the last is halved."""
    found = jury.shortened(told([1, 0, 3], [2, 2, 4], [5, 4, 4]), ORIGIN, 0.0)
    assert [one.sender for one in found] == ["a", "b", "c"]
    np.testing.assert_allclose([flat(one) for one in found], [[1, 0, 3], [2, 2, 4], [3, 2, 3]])


def test_clipping_to_a_radius_and_to_the_lower_median() -> None:
    four = told([1, 0, 3], [2, 2, 4], [5, 4, 4], [1, 0, 2])
    found = jury.shortened(four, ORIGIN, 1.5)
    lengths = [np.linalg.norm(np.subtract(flat(one), [1, 0, 2])) for one in found]
    np.testing.assert_allclose(lengths, [1, 1.5, 1.5, 0])
    found = jury.shortened(four, ORIGIN, 0.0)
    lengths = [np.linalg.norm(np.subtract(flat(one), [1, 0, 2])) for one in found]
    np.testing.assert_allclose(lengths, [1, 1, 1, 0])
    assert jury.shortened([], ORIGIN, 0.0) == []


def test_nodes_that_began_apart_measure_from_the_middle_of_what_was_told() -> None:
    """By hand: the middle is (2, 2, 4); lengths sqrt 6, 0 and sqrt 13."""
    found = jury.shortened(told([1, 0, 3], [2, 2, 4], [5, 4, 4]), None, 0.0)
    share = np.sqrt(6 / 13)
    wanted = [[1, 0, 3], [2, 2, 4], [2 + 3 * share, 2 + 2 * share, 4]]
    np.testing.assert_allclose([flat(one) for one in found], wanted, rtol=1e-6)
    some = [Contribution("a", Tensors({"x": [4, 4]}), 1), Contribution("b", Tensors({"y": [3]}), 1)]
    assert jury.shortened(some, None, 0.0) == some, "each is the middle of what it alone holds"


def test_who_contributes_other_arrays_is_clipped_by_its_own() -> None:
    """Of Fed-DPT's nodes each holds its own domain's slot."""
    some = [Contribution("a", Tensors({"x": [4, 4]}), 1), Contribution("b", Tensors({"y": [3]}), 1)]
    one, other = jury.shortened(some, ORIGIN, 0.0)
    np.testing.assert_allclose(one.tensors["x"], [1.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(other.tensors["y"], [3.0])
    assert "y" not in one.tensors


def test_a_ballot_is_single_numbers() -> None:
    assert jury.misvote({"a": (1,), "b": (1,)}) == ""
    assert jury.misvote({}) == ""
    assert "'b' is [2, 3]" in jury.misvote({"a": (1,), "b": (2, 3)})
