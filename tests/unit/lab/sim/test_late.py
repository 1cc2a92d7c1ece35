"""A member that contributes late in each round: what it costs, and that all nodes end alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pytest

from fednode.core.events import Effect, Event, Tune
from fednode.core.rounds.lateness import LAST_ROUNDS
from fednode.core.types import MEASURE
from fednode.lab.sim.world import Checker, World
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.exchange import ZeroDFL
from tests.unit.lab.sim.meshes import KINDS, NAMES, Kind, digests, mesh, promptfl, texts

ROUNDS = 44
DEADLINE_S = 5.0
ZERODFL = Kind(ZeroDFL, ZeroDFLConfig(recipients=2), {"context": (4, 3)})


class Trainings:
    """Counts the trainings of each node."""

    def __init__(self) -> None:
        self.of = Counter[str]()

    def started(self, world: World, name: str) -> None:
        """Do nothing."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Count the tunings that begin, without those that only measure."""
        self.of[name] += sum(
            isinstance(effect, Tune) and effect.job.stage != MEASURE for effect in effects
        )


def played(
    kind: Kind, late_s: float, names: Sequence[str] = NAMES, checkers: Sequence[Checker] = ()
) -> tuple[World, list[float]]:
    """Run a mesh whose node d needs so long to tune; return how long each round of a took."""
    world = mesh(kind, most=ROUNDS, deadline_s=DEADLINE_S, names=names)
    world.checkers += checkers
    world.hosts["d"].tune_s = late_s
    ends = [world.now]
    while len(ends) <= ROUNDS:
        assert world.run(lambda: world.kernel("a").view().round >= len(ends), 600.0)
        ends.append(world.now)
    assert world.run(world.finished, 600.0)
    return world, [after - before for before, after in pairwise(ends)]


@pytest.mark.parametrize("late_s", [1.0, 0.3 * DEADLINE_S])
@pytest.mark.parametrize("kind", ["promptfl", "promptfl-int8", "plan", "diprompt"])
def test_it_costs_little_and_all_end_alike(kind: str, late_s: float) -> None:
    world, rounds = played(KINDS[kind], late_s)
    twenty = rounds[1:21]
    assert sum(twenty) <= 2 * 20 * median(rounds)
    assert texts(world, "peer.late")
    assert max(rounds[-LAST_ROUNDS:]) > late_s, "the last rounds wait for it"
    assert len(set(digests(world).values())) == 1


def test_where_nobody_is_late_nothing_is_said_of_it() -> None:
    world, _ = played(KINDS["promptfl"], 0.3)
    assert texts(world, "peer.late") == texts(world, "round.resting") == []


def test_a_late_member_still_contributes() -> None:
    """All nodes merge its contribution in some rounds, and in the last ones."""
    world, _ = played(KINDS["promptfl"], 1.0)
    held = world.hosts["a"].durable
    assert held is not None
    assert held.merge_counts.merged > LAST_ROUNDS


@pytest.mark.parametrize("late_s", [1.0, 0.3 * DEADLINE_S, 0.5 * DEADLINE_S, 0.8 * DEADLINE_S])
def test_it_costs_little_in_zerodfl_too(late_s: float) -> None:
    """Nobody waits for it in most rounds; it trains on, and its rows are merged when they come."""
    trainings = Trainings()
    world, rounds = played(ZERODFL, late_s, checkers=[trainings])
    assert sum(rounds[1:21]) <= 2 * 20 * median(rounds)
    assert texts(world, "peer.late")
    assert {host.durable.policy.round for host in world.hosts.values() if host.durable} == {ROUNDS}
    assert trainings.of["d"] > 4


def test_where_nobody_is_late_in_zerodfl_nothing_is_said_of_it() -> None:
    world, _ = played(ZERODFL, 0.3)
    assert texts(world, "peer.late") == texts(world, "round.resting") == []


def test_where_nodes_are_drawn_only_the_drawn_vote_so_all_merge_the_same() -> None:
    world, rounds = played(promptfl(participants=3), 1.0)
    assert sum(rounds[1:21]) <= 2 * 20 * median(rounds)
    assert texts(world, "peer.late")
    assert texts(world, "round.drift") == texts(world, "state.differs") == []
    assert len(set(digests(world).values())) == 1


@pytest.mark.parametrize(
    ("kind", "names"),
    [(KINDS["promptfl"], "ad"), (promptfl(participants=2), NAMES)],
    ids=["two", "two-drawn"],
)
def test_of_two_none_rests_and_the_slow_one_trains_in_each_of_its_rounds(
    kind: Kind, names: Sequence[str]
) -> None:
    trainings = Trainings()
    world, _ = played(kind, 1.0, names, [trainings])
    assert texts(world, "peer.late") == texts(world, "round.resting") == []
    assert trainings.of["d"] > 0.7 * trainings.of["a"]
