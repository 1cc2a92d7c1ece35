"""Sites change their settings together while they run: faults, refusals, rival proposals."""

from __future__ import annotations

import pytest

from fednode.core.documents import FAILED, REFUSED
from fednode.core.life import Life
from tests.simulation.documents import PROMPTFL, ZERODFL, Amended

LIMIT_S = 600.0


def begun(made: Amended, number: int = 5) -> Amended:
    """Start all nodes, and let them run some rounds."""
    world = made.world
    world.start(*made.names)
    assert world.run(
        lambda: all(world.kernel(name).view().round >= number for name in made.names), 60
    )
    return made


def rounds(made: Amended) -> set[int]:
    return {made.world.kernel(name).view().round for name in made.names}


def states(made: Amended) -> set[str]:
    return {made.world.kernel(name).policy.state().tensors.digest for name in made.names}


@pytest.mark.parametrize("kind", [PROMPTFL, ZERODFL], ids=["promptfl", "zerodfl"])
def test_more_rounds_begin_in_the_same_round_everywhere(kind: object) -> None:
    made = begun(Amended(kind))  # type: ignore[arg-type]
    made.propose("a", made.document(1, 10, max=30))
    assert made.world.run(made.world.finished, LIMIT_S)
    assert set(made.forces().values()) == {1}
    assert rounds(made) == {30}
    if kind is ZERODFL:
        return  # asynchronous rounds: a site that is behind begins with most of the others
    assert len(states(made)) == 1
    said = [one.text for host in made.world.hosts.values() for one in host.records]
    assert said.count("settings 1 are in force from round 10 on") == len(made.names)
    company = [made.world.kernel(name).view().company for name in made.names]
    assert company == [{3: 30}] * 4, "no round was lost: each merged all peers"


def test_another_policy_begins_a_new_run_and_keeps_the_old_one() -> None:
    made = begun(Amended())
    made.propose("b", made.document(1, 10, ZERODFL, max=12))
    assert made.world.run(lambda: rounds(made) == {12} and made.world.finished(), LIMIT_S)
    kernels = [made.world.kernel(name) for name in made.names]
    assert {one.context.policy for one in kernels} == {"zerodfl"}
    assert {one.context.rounds.max for one in kernels} == {12}
    for host in made.world.hosts.values():
        runs = [(snapshot.redone, snapshot.policy.round) for snapshot in host.history]
        assert runs == [*((0, at) for at in range(1, 10)), *((1, at) for at in range(13))]


def test_a_site_that_refuses_goes_on_alone_and_says_so() -> None:
    made = begun(Amended(accepts=lambda name, _: name != "d"))
    made.propose("a", made.document(1, 10, ZERODFL))
    assert made.world.run(made.world.finished, LIMIT_S)
    assert made.forces() == {"a": 1, "b": 1, "c": 1, "d": 0}
    said = [one for one in made.world.hosts["d"].records if one.kind == REFUSED]
    assert len(said) == 1
    reasons = [peer.reason for peer in made.world.kernel("d").view().peers]
    assert all("under settings 1" in text for text in reasons), reasons
    assert all("'d' " in text and "under the settings of its own files" in text for text in reasons)
    seen = {peer.name: peer.state for peer in made.world.kernel("a").view().peers}
    assert seen == {"b": "alive", "c": "alive", "d": "refused"}


def test_a_site_that_accepts_later_comes_after() -> None:
    made = begun(Amended(accepts=lambda name, _: None if name == "d" else True))
    document = made.document(1, 8, max=60)
    made.propose("a", document)
    assert made.world.run(lambda: made.world.kernel("a").view().round >= 20, LIMIT_S)
    assert made.forces()["d"] == 0
    made.world.hosts["d"].desk.decided[document.digest] = True
    for decision in made.world.hosts["d"].desk.again():
        made.world.tell("d", decision)
    assert made.world.run(made.world.finished, LIMIT_S)
    assert rounds(made) == {60}
    assert len(states(made)) == 1


def test_of_two_proposals_at_once_all_sites_end_under_the_same_one() -> None:
    made = begun(Amended())
    first, second = made.document(1, 8, max=30), made.document(1, 12, max=40)
    made.propose("a", first)
    made.propose("d", second)
    best = max(first, second, key=lambda one: -int(one.digest, 16))
    assert made.world.run(
        lambda: {made.world.kernel(name).documents.force for name in made.names} == {best}, LIMIT_S
    )
    assert made.world.run(made.world.finished, LIMIT_S)
    assert len(rounds(made)) == 1


def test_nobody_runs_under_what_only_its_proposer_believes() -> None:
    made = begun(Amended())
    forged = made.document(1, 8, ZERODFL)
    del made.world.signed[forged.proof]
    made.propose("a", forged)
    assert made.world.run(made.world.finished, LIMIT_S)
    assert made.forces() == {"a": 1, "b": 0, "c": 0, "d": 0}
    assert all(not made.world.kernel(name).documents.held for name in "bcd")


def test_a_site_that_was_away_during_the_change_comes_after() -> None:
    made = begun(Amended())
    made.world.crash("c")
    made.propose("a", made.document(1, 8, ZERODFL, max=40))
    assert made.world.run(lambda: made.forces() == {"a": 1, "b": 1, "d": 1}, LIMIT_S)
    made.world.start("c")
    assert made.world.run(made.world.finished, LIMIT_S)
    assert rounds(made) == {40}
    assert set(made.forces().values()) == {1}


@pytest.mark.parametrize("slow", [0.0, 0.3])
def test_a_crash_at_any_moment_of_the_change_loses_nothing(slow: float) -> None:
    """Each seed kills a site at another moment; it comes back, and ends as the others do."""
    for at in range(20):
        made = begun(Amended(seed=at, max=40))
        made.world.hosts["b"].disk_s = slow
        made.propose("a", made.document(1, 9, ZERODFL, max=30))
        made.world.run(lambda: False, 0.15 * at)
        made.world.crash("b")
        made.world.run(lambda: False, 0.4)
        made.world.start("b")
        assert made.world.run(made.world.finished, LIMIT_S), at
        assert set(made.forces().values()) == {1}, at
        assert rounds(made) == {30}, at


def test_a_full_disk_refuses_the_change_and_says_so() -> None:
    made = begun(Amended(max=6))
    assert made.world.run(made.world.finished, LIMIT_S)
    made.world.hosts["b"].full = True
    made.propose("a", made.document(1, 8, max=30))
    assert made.world.run(
        lambda: any(one.kind == FAILED for one in made.world.hosts["b"].records), LIMIT_S
    )
    made.world.hosts["b"].full = False
    assert made.world.run(made.world.finished, LIMIT_S)
    assert made.forces()["b"] == 0
    assert "no space left" in next(
        one.text for one in made.world.hosts["b"].records if one.kind == FAILED
    )


def test_a_finished_mesh_goes_on_at_once_and_a_paused_site_when_it_is_resumed() -> None:
    made = begun(Amended(max=6))
    assert made.world.run(made.world.finished, LIMIT_S)
    made.world.command("d", "pause")
    made.propose("a", made.document(1, 1, max=9))
    assert made.world.run(lambda: rounds(made) == {6, 9}, LIMIT_S)
    assert made.world.kernel("d").view().life == Life.PAUSED
    made.world.command("d", "resume")
    assert made.world.run(made.world.finished, LIMIT_S)
    assert rounds(made) == {9}
