"""Where a node goes on once others confirmed a state: every row of the table, by value."""

from __future__ import annotations

import itertools

import pytest

from fednode.core.rounds.decision import Decision, Finish, Merge, Restart, Standing, Stay, decide
from fednode.core.rounds.transfer import Destination
from fednode.core.types import Tensors

STATE = Tensors({"shared/context": [[9.0]]})
FLAGS = tuple(itertools.product([False, True], repeat=3))
"""Whether the node drifts, has contributed, and waits for the first stage."""


def standing(drifts: bool = True, told: bool = False, waits: bool = False) -> Standing:
    """Return a node in round 5 of 9."""
    return Standing(number=5, last=9, drifts=drifts, told=told, waits=waits)


@pytest.mark.parametrize("flags", FLAGS)
def test_without_a_destination_the_round_goes_on(flags: tuple[bool, bool, bool]) -> None:
    assert decide(standing(*flags), None) == Stay()


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(
    ("number", "reached"),
    [(5, 5), (8, 8), (9, 9), (12, 9)],  # no word moves a node beyond its last round
)
@pytest.mark.parametrize("state", [STATE, None])
def test_a_round_that_others_finished_ends_at_once(
    flags: tuple[bool, bool, bool], number: int, reached: int, state: Tensors | None
) -> None:
    found = decide(standing(*flags), Destination(number, state, "b"))
    assert found == Finish(reached, state)
    assert isinstance(found, Finish)
    assert found.giver == "b", "it counts as a peer whose prompts the node holds"


@pytest.mark.parametrize(
    ("drifts", "told", "waits", "expected"),
    [
        (True, True, True, Merge(STATE)),
        (True, False, True, Merge(STATE)),  # a node that was not drawn contributes nothing
        (True, False, False, Restart(STATE)),
        (True, True, False, Stay()),
        (False, False, False, Stay()),
        (False, False, True, Stay()),
        (False, True, False, Stay()),
        (False, True, True, Stay()),
    ],
)
def test_the_state_that_others_began_the_round_from_is_for_a_node_that_drifted(
    drifts: bool, told: bool, waits: bool, expected: Decision
) -> None:
    assert decide(standing(drifts, told, waits), Destination(4, STATE)) == expected


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("to", [Destination(4), Destination(3, STATE), Destination(0, STATE)])
def test_an_older_state_or_none_comes_too_late(
    flags: tuple[bool, bool, bool], to: Destination
) -> None:
    assert decide(standing(*flags), to) == Stay()
