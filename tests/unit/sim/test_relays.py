"""Simulated relays by value: which path a call takes, and what faults and lies do to it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fednode.sim.relays import DELAY_S, LATE_S, SILENT_S, TRY_AGAIN_S, Relay, Relays


class Clock:
    """The time, and what happens later."""

    def __init__(self) -> None:
        self.now = 100.0
        self._later: list[tuple[float, Callable[[], None]]] = []

    def after(self, delay: float, act: Callable[[], None]) -> None:
        self._later.append((self.now + delay, act))

    def passes(self, seconds: float) -> None:
        self.now += seconds
        due = [act for at, act in self._later if at <= self.now]
        self._later = [each for each in self._later if each[0] > self.now]
        for act in due:
            act()


def relays(*lies: str, shut: str = "abc") -> tuple[Relays, Clock, list[str]]:
    clock, regained = Clock(), list[str]()
    made = Relays(
        random.Random(1),
        ("a", "b", "c"),
        lambda: clock.now,
        clock.after,
        regained.append,
        set(shut),
        {f"r{number}": Relay(f"r{number}", lie) for number, lie in enumerate(lies, 1)},
    )
    return made, clock, regained


def via(made: Relays, caller: str = "a", called: str = "b") -> str:
    """Return the path of a call that begins now; "" if there is none."""
    return made._streams[caller, called].via if made.reaches(caller, called) else ""


def called(made: Relays, caller: str = "a", to: str = "b") -> float | None:
    """Return how much later the frame of a call arrives."""
    assert made.end(caller, to) == to
    return made.carries(caller, to)


def test_a_node_that_can_be_dialled_is_dialled_and_others_go_through_the_first_relay() -> None:
    made, _, _ = relays("", "", shut="b")
    assert (via(made, "b", "a"), via(made)) == ("direct", "r1")
    assert called(made) == 0.0
    assert made.carries("b", "a") == 0.0  # the reply takes the same way back


def test_a_relay_that_dies_resets_its_streams_and_calls_take_the_other() -> None:
    made, clock, regained = relays("", "")
    assert via(made) == "r1"
    made.die("r1")
    assert via(made) == "r2"
    made.die("r2")
    assert not made.reaches("a", "b")
    made.back("r2")
    assert not made.reaches("a", "b")  # the nodes do not wait there yet
    clock.passes(2.0)
    assert via(made) == "r2"
    assert sorted(regained) == ["a", "b", "c"]


def test_streams_of_a_hung_relay_end_once_it_was_silent() -> None:
    made, clock, _ = relays("", "")
    assert via(made) == "r1"
    made.hang("r1")
    assert called(made) is None
    clock.passes(SILENT_S)
    assert via(made) == "r2"


def test_a_relay_that_forgets_a_node_or_drains_is_passed_over() -> None:
    made, clock, _ = relays("", "")
    made.forget("r1", "b")
    assert via(made) == "r2"
    made.drain("r2")
    assert not made.reaches("a", "b")
    clock.passes(SILENT_S + 2.0)
    assert via(made) == "r1"
    made.slow("r1", 0.5)
    assert called(made) == 0.5


def test_a_firewall_that_opens_is_used_soon_and_a_call_leaves_one_that_shuts() -> None:
    made, clock, _ = relays("")
    assert via(made) == "r1"
    made.open("b")
    assert via(made) == "r1"
    clock.passes(TRY_AGAIN_S)
    assert via(made) == "direct"
    made.close("b")
    assert called(made) is None
    clock.passes(LATE_S)
    assert via(made) == "r1"


@pytest.mark.parametrize("lie", ["absent", "wrong", "false"])
def test_a_relay_that_lies_about_nodes_is_passed_over(lie: str) -> None:
    made, _, _ = relays(lie, "")
    assert via(made) == "r2"


def test_a_relay_that_carries_nothing_is_left_after_a_late_call() -> None:
    made, clock, _ = relays("drop", "")
    assert called(made) is None
    clock.passes(LATE_S)
    assert via(made) == "r2"
    assert called(relays("delay")[0]) == DELAY_S


def test_a_path_exists_where_an_honest_relay_or_an_open_port_is() -> None:
    made, _, _ = relays("drop", shut="b")
    assert made.path_exists("b", "a")
    assert not made.path_exists("a", "b")
    made.open("b")
    assert made.path_exists("a", "b")
    made.die("r1")
    made.heal()
    assert made.all["r1"].state == "up"
