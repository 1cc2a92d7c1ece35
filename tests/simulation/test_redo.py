"""Nodes that ran their rounds alone begin them again together: meshes in virtual time."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.core.life import Life
from fednode.core.members.phases import PHASES
from fednode.core.redo import REDOS_MAX
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.view import KernelView
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.lab.simulate.checkers import ALL
from fednode.learn.closed_form import ClosedFormLearner
from fednode.policies.local.exchange import Local, LocalConfig
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.exchange import ZeroDFL
from tests.unit.lab.sim.meshes import Kind, promptfl

NAMES = ("a", "b", "c")
ROUNDS = 6
PROMPTFL = promptfl()
ZERODFL = Kind(ZeroDFL, ZeroDFLConfig(), {"context": (4, 3)})
CONTROL = Kind(Local, LocalConfig(), {"context": (4, 3)})
BOTH = pytest.mark.parametrize("kind", [PROMPTFL, ZERODFL], ids=["promptfl", "zerodfl"])


def mesh(kind: Kind, redo: str = "abc", names: str = "abc", **rounds: Any) -> World:
    """Return a mesh that is switched off. redo: the nodes that begin again by themselves."""
    world = World(1)
    world.checkers = [made() for made in ALL]
    for name in names:
        limits = {"max": ROUNDS, "start": StartSettings(timeout_s=5.0), "deadline_s": 5.0}
        setup = Setup(
            policy=kind.policy,
            config=kind.config,
            rounds=RoundSettings(redo=name in redo, **{**limits, **rounds}),
        )
        learner = ClosedFormLearner(name, samples=10, shapes=kind.shapes)
        peers = tuple(one for one in names if one != name)
        world.add(name, setup.build(name, peers, learner), learner)
    return world


def alone(world: World) -> World:
    """Let every node run its rounds without its peers; then mend the network."""
    for one, other in combinations(world.hosts, 2):
        world.cut(one, other)
    world.start(*world.hosts)
    assert world.run(world.finished, 600.0)
    assert all(merged(world, name) == 0 for name in world.hosts)
    for one, other in combinations(world.hosts, 2):
        world.mend(one, other)
    return world


def passed(world: World, seconds: float = 120.0) -> World:
    world.run(lambda: False, seconds)
    return world


def view(world: World, name: str) -> KernelView:
    return world.kernel(name).view()


def merged(world: World, name: str) -> int:
    return view(world, name).merge_counts.merged


def redone(world: World) -> list[int]:
    found = [host.durable for host in world.hosts.values()]
    return [0 if one is None else one.redone for one in found]


@BOTH
def test_nodes_that_ran_alone_begin_again_together(kind: Kind) -> None:
    world = passed(alone(mesh(kind)))
    for name in NAMES:
        seen = view(world, name)
        assert (seen.life, seen.round, seen.redo) == (Life.FINISHED, ROUNDS, "")
        assert merged(world, name) >= ROUNDS // 2, seen.merge_counts
    assert redone(world) == [1, 1, 1]


def test_the_rounds_again_give_what_a_mesh_gives_that_began_together() -> None:
    world, fresh = passed(alone(mesh(PROMPTFL))), mesh(PROMPTFL)
    fresh.start(*NAMES)
    assert fresh.run(fresh.finished, 600.0)
    for name in NAMES:
        again, first = world.hosts[name].durable, fresh.hosts[name].durable
        assert again is not None
        assert first is not None
        assert again.policy == first.policy
        assert view(world, name).merge_counts == (ROUNDS, ROUNDS)


@BOTH
def test_nobody_gives_its_prompts_up_before_all_have_agreed(kind: Kind) -> None:
    world = passed(alone(mesh(kind, redo="ab")))
    assert [view(world, name).redo for name in NAMES] == ["again", "again", "ended"]
    assert redone(world) == [0, 0, 0]
    why = "c (it has run its rounds alone; it begins again after: fednode redo c)"
    assert view(world, "a").redo_waits == why
    offered = [one.text for one in world.hosts["c"].records if one.kind == "redo.offered"]
    assert offered[0].startswith("c ran its rounds and merged no peer's prompts; ")
    assert offered[0].endswith("fednode redo c begins the rounds again together")
    assert len(offered) == 1
    world.command("c", "redo")
    passed(world)
    assert redone(world) == [1, 1, 1]
    assert min(merged(world, name) for name in NAMES) >= ROUNDS // 2


@BOTH
def test_a_request_is_taken_back_by_pause(kind: Kind) -> None:
    world = passed(alone(mesh(kind, redo="")))
    world.command("a", "redo")
    assert view(world, "a").redo == "again"
    world.command("a", "pause")
    passed(world, 5.0)
    for name in "bc":
        world.command(name, "redo")
    passed(world)
    assert redone(world) == [0, 0, 0]
    world.command("a", "resume")
    assert view(world, "a").redo == "ended"
    world.command("a", "redo")
    passed(world)
    assert redone(world) == [1, 1, 1]


@BOTH
def test_a_node_begins_without_the_rest_if_its_operator_says_so(kind: Kind) -> None:
    world = passed(alone(mesh(kind, redo="b")))
    world.command("a", "redo")
    passed(world)
    assert redone(world) == [0, 0, 0], "c has not agreed"
    for name in "ab":
        world.command(name, "alone")
    passed(world)
    assert redone(world) == [1, 1, 0]
    assert merged(world, "a") >= ROUNDS // 2
    assert merged(world, "b") >= ROUNDS // 2


@BOTH
def test_a_node_that_ran_alone_takes_part_in_the_first_run_of_its_peers(kind: Kind) -> None:
    world = mesh(kind, redo="a")
    world.start("a")
    passed(world, 60.0)
    assert view(world, "a").redo == "again"
    world.start("b", "c")
    passed(world)
    assert redone(world) == [1, 0, 0]
    assert merged(world, "a") >= ROUNDS // 2


def test_peers_wait_for_a_node_that_ran_alone_and_say_what_ends_the_wait() -> None:
    world = mesh(PROMPTFL, redo="", start=StartSettings(timeout_s=600.0))
    world.start("a")
    world.command("a", "alone")
    passed(world, 60.0)
    world.start("b", "c")
    passed(world, 60.0)
    why = "a (it has run its rounds alone; it begins again after: fednode redo a)"
    assert view(world, "b").awaited == why
    world.command("a", "redo")
    passed(world)
    assert all(view(world, name).merge_counts == (ROUNDS, ROUNDS) for name in NAMES)


def test_a_node_that_ran_alone_joins_a_mesh_in_mid_run_by_catch_up() -> None:
    world = mesh(PROMPTFL, redo="a", max=30, start=StartSettings(timeout_s=2.0))
    world.start("a")
    assert world.run(world.finished, 600.0)
    for peer in "bc":
        world.cut("a", peer)
    world.start("b", "c")
    assert world.run(lambda: view(world, "b").round >= 12, 60.0)
    for peer in "bc":
        world.mend("a", peer)
    passed(world)
    seen = view(world, "a")
    assert seen.round == 30
    assert 0 < seen.merge_counts.rounds < 20, "it did not run the rounds that it missed"
    assert merged(world, "a") == seen.merge_counts.rounds
    assert any(one.kind == "round.taken" for one in world.hosts["a"].records)
    assert redone(world) == [1, 0, 0]


def a_runs_apart(world: World) -> None:
    """Let a run its rounds alone, then b and c theirs while a is cut off, and let all meet."""
    world.start("a")
    passed(world, 60.0)
    for peer in "bc":
        world.cut("a", peer)
    world.start("b", "c")
    passed(world, 60.0)
    for peer in "bc":
        world.mend("a", peer)
    passed(world)


def test_a_node_that_ran_alone_takes_over_what_its_peers_have_merged() -> None:
    world = mesh(PROMPTFL, redo="a")
    a_runs_apart(world)
    held = {name: world.hosts[name].durable for name in NAMES}
    assert held["a"] is not None
    assert held["b"] is not None
    assert held["a"].policy.tensors == held["b"].policy.tensors
    assert redone(world) == [1, 0, 0], "those that merged do not begin again"


def test_peers_of_zerodfl_that_have_merged_are_named_because_they_send_nothing_more() -> None:
    world = mesh(ZERODFL, redo="abc")
    a_runs_apart(world)
    assert redone(world) == [0, 0, 0]
    assert "b (it has run its rounds and sends nothing more" in view(world, "a").redo_waits
    for peer in "bc":
        world.command(peer, "redo")
    passed(world)
    assert redone(world) == [1, 1, 1]


@pytest.mark.parametrize("kind", [CONTROL, PROMPTFL], ids=["local", "mesh of one"])
def test_a_node_that_is_alone_by_wish_never_begins_again(kind: Kind) -> None:
    world = mesh(kind, names="abc" if kind is CONTROL else "a")
    world.start(*world.hosts)
    passed(world)
    world.command("a", "redo")
    passed(world)
    assert redone(world) == [0] * len(world.hosts)
    assert world.hosts["a"].records[-1].text == "redo does nothing now"
    assert view(world, "a").redo == ""


def test_a_node_begins_again_by_itself_a_few_times_only() -> None:
    """b takes nothing from a, and a nothing from b: each run ends without a merge."""
    world = mesh(PROMPTFL, names="ab", start=StartSettings(timeout_s=1.0))
    world.start("a", "b")
    for _ in range(REDOS_MAX + 2):
        world.cut("a", "b")
        assert world.run(world.finished, 600.0)
        world.mend("a", "b")
        world.run(lambda: view(world, "a").round == 0, 60.0)
        world.run(lambda: view(world, "b").round == 0, 60.0)
    assert redone(world) == [REDOS_MAX] * 2
    assert [view(world, name).redo for name in "ab"] == ["ended", "ended"]


@BOTH
@pytest.mark.parametrize("later_s", [0.0, 0.05, 0.3, 0.6, 1.2])
def test_a_crash_while_the_rounds_begin_again_loses_nothing(kind: Kind, later_s: float) -> None:
    world = alone(mesh(kind))
    world.hosts["b"].disk_s = 0.5
    assert world.run(lambda: 1 in redone(world), 60.0)
    passed(world, later_s)
    world.crash("b")
    world.start("b")
    passed(world, 200.0)
    for name in NAMES:
        assert view(world, name).life == Life.FINISHED
        assert merged(world, name) > 0
    assert max(redone(world)) <= 2


def test_a_full_disk_keeps_the_run_that_is_over_until_there_is_room() -> None:
    world = alone(mesh(PROMPTFL))
    world.hosts["b"].full = True
    passed(world, 30.0)
    held = world.hosts["b"].durable
    assert held is not None
    assert held.policy.round == ROUNDS
    world.hosts["b"].full = False
    passed(world, 200.0)
    assert redone(world) == [1, 1, 1]
    assert all(merged(world, name) > 0 for name in NAMES)


@BOTH
def test_prompts_of_a_run_that_is_over_without_peers_are_for_nobody(kind: Kind) -> None:
    world = alone(mesh(kind, redo=""))
    world.messages.clear()
    passed(world)
    assert world.messages
    assert all(one.phase in PHASES and one.redo == "ended" for one in world.messages)


def acts() -> st.SearchStrategy[list[tuple[str, str, float]]]:
    """Return lists of (act, node, seconds until the next act)."""
    kinds = st.sampled_from(["start", "crash", "cut", "mend", "redo", "alone", "pause", "resume"])
    return st.lists(st.tuples(kinds, st.sampled_from("abc"), st.floats(0.0, 20.0)), max_size=12)


@BOTH
@given(plan=acts(), redo=st.sets(st.sampled_from("abc")))
@settings(deadline=None, max_examples=settings().max_examples // 5)
def test_whatever_happens_a_federated_run_is_kept_and_a_whole_mesh_federates(
    kind: Kind, plan: list[tuple[str, str, float]], redo: set[str]
) -> None:
    world = mesh(kind, redo="".join(redo), max=3, start=StartSettings(timeout_s=2.0))
    kept: dict[str, int] = {}
    asked: set[str] = set()
    for act, name, seconds in plan:
        host = world.hosts[name]
        if act == "start" and host.kernel is None:
            world.start(name)
        elif act == "crash" and host.kernel is not None:
            world.crash(name)
        elif act in {"cut", "mend"}:
            for peer in set(NAMES) - {name}:
                (world.cut if act == "cut" else world.mend)(name, peer)
        elif act in {"redo", "alone", "pause", "resume"} and host.kernel is not None:
            world.command(name, act)  # type: ignore[arg-type]
            asked |= {name} if act == "redo" else set()
        passed(world, seconds)
        for one in NAMES:
            held = world.hosts[one].durable
            if held is not None and one not in asked:
                count = held.merge_counts.merged
                assert count >= kept.get(one, 0), f"{one} gave a federated run up unasked"
                kept[one] = count
    # Now nothing is in the way, and every operator who is shown a wait ends it.
    for one, other in combinations(NAMES, 2):
        world.mend(one, other)
    world.start(*(name for name in NAMES if world.hosts[name].kernel is None))
    for name in NAMES:
        world.command(name, "resume")
    passed(world, 30.0)
    for name in NAMES:
        world.command(name, "redo")
    durable = [world.hosts[name] for name in NAMES]
    federated = world.run(
        lambda: all(one.durable and one.durable.merge_counts.merged for one in durable), 200.0
    )
    assert federated, [view(world, name) for name in NAMES]
