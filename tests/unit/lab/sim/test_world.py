"""The simulator: a mesh in virtual time that repeats itself, and lives through what it should."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from fednode.core.policy import start_seed
from fednode.core.settings import Barrier, Initial, RoundSettings, StartSettings
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.contract.seeds import seeds
from tests.unit.lab.sim.meshes import texts

NAMES = tuple("abcde")
LIMIT_S = 3600.0


def world(
    seed: int = 1,
    mode: Barrier = "async",
    most: int = 20,
    loss: float = 0.0,
    names: Sequence[str] = NAMES,
    run_seed: int = 1,
    start: Initial = "common",
    **config: object,
) -> World:
    made = World(seed, loss=loss)
    rounds = RoundSettings(mode=mode, max=most, start=StartSettings(peers=len(names) - 1))
    plan = Setup(
        policy=ZeroDFL,
        config=ZeroDFLConfig(**config),  # type: ignore[arg-type]
        rounds=rounds,
        seed=run_seed,
        start=start,
    )
    made.populate(plan, {name: QuadraticLearner(name) for name in names})
    return made


def digests(made: World) -> dict[str, str]:
    return {name: made.kernel(name).policy.state().tensors.digest for name in made.hosts}


@pytest.mark.parametrize("start", ["common", "own"])
def test_a_run_ends_and_repeats_itself(start: Initial) -> None:
    """Where all wait for all, not even the seed of the network decides anything."""
    for mode, networks in (("async", (1, 1)), ("sync", (1, 2, 3))):
        made = [world(seed, mode, start=start, recipients=2) for seed in networks]  # type: ignore[arg-type]
        assert all(one.run(one.finished, LIMIT_S) for one in made)
        assert all(digests(one) == digests(made[0]) for one in made)
        if mode == "async":
            assert len({(one.now, len(one.messages)) for one in made}) == 1


def test_nodes_begin_alike_or_each_from_its_own_draw_of_run_seed_and_name() -> None:
    assert start_seed("common", 7, "a") == start_seed("common", 7, "b") == 7
    common = {QuadraticLearner("a").initial(1).digest}
    assert set(digests(world()).values()) == common
    own = {
        (seed, name): QuadraticLearner(name).initial(start_seed("own", seed, name)).digest
        for seed in (1, 2)
        for name in NAMES
    }
    assert len({*own.values()} | common) == 1 + len(own)
    for seed in (1, 2):
        begun = digests(world(run_seed=seed, start="own"))
        assert begun == {name: own[seed, name] for name in NAMES}


def test_a_node_whose_disk_is_wiped_begins_as_it_did() -> None:
    made = world(start="own")
    begun = digests(made)
    assert made.run(lambda: made.kernel("b").view().round >= 3, LIMIT_S)
    made.crash("b")
    made.hosts["b"].wipe()
    made.start("b")
    assert digests(made)["b"] == begun["b"]


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("seed", seeds(1, 8))
def test_lost_messages_never_cost_a_deadline(mode: Barrier, seed: int) -> None:
    made = world(seed, mode, loss=0.1, recipients=2)
    assert made.run(made.finished, LIMIT_S)
    assert texts(made, "round.deadline") == []
    assert {host.durable.policy.round for host in made.hosts.values() if host.durable} == {20}


def test_prompts_spread_where_they_are_exchanged() -> None:
    """After a merge every node starts from rows of others: its loss is above that of one alone."""
    apart, together = (world(rows_shared=shared, most=5) for shared in (0, None))
    for made in (apart, together):
        assert made.run(made.finished, LIMIT_S)
    for name in NAMES:
        losses = [one.kernel(name).view().metrics["loss"] for one in (apart, together)]
        assert losses[0] < losses[1]


def test_a_crash_loses_the_round_in_flight_and_nothing_else() -> None:
    made = world(most=30, recipients=2)
    made.run(lambda: made.kernel("c").view().round >= 10, LIMIT_S)
    before = made.hosts["c"].durable
    assert before is not None
    made.crash("c")
    made.run(lambda: made.kernel("a").view().round >= 20, LIMIT_S)
    assert made.run(
        lambda: any(peer.state == "dead" for peer in made.kernel("a").view().peers), LIMIT_S
    )
    made.start("c")
    assert made.kernel("c").policy.state() == before.policy
    assert made.run(made.finished, LIMIT_S)
    rounds = [one.policy.round for one in made.hosts["c"].history]
    assert rounds == list(range(1, 31))


def test_a_node_cut_off_from_all_goes_on_alone_and_is_taken_back() -> None:
    made = world(most=0)
    made.run(lambda: made.kernel("a").view().round >= 3, LIMIT_S)
    for name in NAMES[1:]:
        made.cut("a", name)
    assert made.run(lambda: made.kernel("a").view().alone, LIMIT_S)
    alone = made.kernel("a").view().round
    assert made.run(lambda: made.kernel("a").view().round > alone + 5, LIMIT_S)
    for name in NAMES[1:]:
        made.mend("a", name)
    assert made.run(lambda: not made.kernel("a").view().alone, LIMIT_S)
    assert made.run(
        lambda: {peer.state for peer in made.kernel("b").view().peers} == {"alive"}, LIMIT_S
    )


def test_sync_goes_on_without_the_dead_and_takes_the_returned_along() -> None:
    made = world(mode="sync", most=40, recipients=2)
    made.run(lambda: made.kernel("e").view().round >= 5, LIMIT_S)
    made.crash("e")
    assert made.run(lambda: made.kernel("a").view().round >= 15, LIMIT_S)
    made.start("e")
    assert made.run(made.finished, LIMIT_S)
    assert texts(made, "round.deadline") == []
    rounds = [one.policy.round for one in made.hosts["e"].history]
    assert rounds[-1] == 40
    assert len(rounds) < 40  # it went on where the others were


def test_a_full_disk_holds_the_round_up_and_loses_nothing() -> None:
    made = world(most=10)
    made.run(lambda: made.kernel("b").view().round >= 3, LIMIT_S)
    made.hosts["b"].full = True
    stored = len(made.hosts["b"].history)
    made.run(lambda: False, 20.0)
    assert len(made.hosts["b"].history) == stored
    assert any("no space left; trying again" in text for text in texts(made, "adopt.failed"))
    made.hosts["b"].full = False
    assert made.run(made.finished, LIMIT_S)
    assert [one.policy.round for one in made.hosts["b"].history] == list(range(1, 11))


def test_time_that_runs_out_is_told() -> None:
    made = world(most=0)
    assert not made.run(lambda: False, 5.0)
    assert made.now == 5.0
    made.crash("a")
    with pytest.raises(RuntimeError, match="a is off"):
        made.kernel("a")


def test_more_events_wait_behind_a_slow_disk_than_python_calls_go_deep() -> None:
    made = world(names="a", most=1)
    host = made.hosts["a"]
    host.disk_s = 1.0
    assert made.run(lambda: host.waiting is not None, LIMIT_S)
    waiting = 2 * sys.getrecursionlimit()
    for _ in range(waiting):
        made.command("a", "resume")
    assert texts(made, "command") == []
    assert made.run(made.finished, LIMIT_S)
    assert len(texts(made, "command")) == waiting
