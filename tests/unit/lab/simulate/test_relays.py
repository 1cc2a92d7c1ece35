"""Relays of a scenario: what a seed draws, and when a dead member is one too many."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from fednode.core.events import TimerFired
from fednode.core.members.swim import PROBE
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.relays import DEAD_S, NobodyStaysDead, RelaySettings, draw_relays
from fednode.sim.network import Network
from fednode.sim.relays import LIES, Relay, Relays

NAMES = ("a", "b", "c")


def test_one_relay_at_least_is_honest_and_faults_begin_in_time() -> None:
    settings = RelaySettings(count=(1, 4), lies=LIES, shut=0.5, faults=3)
    kinds = set()
    for seed in range(50):
        drawn, faults = draw_relays(settings, NAMES, random.Random(seed), 9.0)
        assert "" in drawn.lies.values()
        assert all(0 <= at <= 9 for at, *_ in faults)
        kinds |= {kind for _, kind, _, _ in faults}
    assert len(kinds) == 7


@pytest.mark.parametrize(
    "wrong", [{"count": (0, 1)}, {"count": (1, 5)}, {"shut": 2.0}, {"lies": ("x",)}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="relays"):
        RelaySettings(**wrong)


def test_a_member_that_stays_dead_beside_a_whole_path_is_a_violation() -> None:
    peer = SimpleNamespace(name="b", state="dead")
    kernel = SimpleNamespace(view=lambda: SimpleNamespace(peers=[peer]))
    world: Any = SimpleNamespace(now=0.0, kernel=lambda _: kernel, hosts={"b": kernel})
    kernel.kernel = kernel
    relays = Relays(random.Random(1), NAMES, lambda: world.now, lambda *_: None)
    relays.shut, relays.all = set(NAMES), {"r1": Relay("r1")}
    world.network = Network(random.Random(1), relays=relays)
    checker = NobodyStaysDead()

    def look(at: float) -> None:
        world.now = at
        checker.stepped(world, "a", TimerFired(PROBE), [])

    look(0.0)
    look(DEAD_S)
    relays.all["r1"].state = "dead"  # no path: the time begins anew
    look(DEAD_S + 1)
    relays.all["r1"].state = "up"
    look(DEAD_S + 2)
    checker.started(world, "b")
    look(DEAD_S + 3)
    with pytest.raises(Violation, match="a takes b for dead"):
        look(2 * DEAD_S + 4)
