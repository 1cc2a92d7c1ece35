"""Newcomers of a scenario: what a seed draws, and when a name has a wrong key."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fednode.core.types import Update
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.newcomers import (
    GHOST,
    SPONSOR_LIES,
    DrawnNewcomers,
    Growth,
    NewcomerSettings,
    draw_newcomers,
)
from fednode.sim.world import World

NAMES = ("a", "b", "c")


def test_the_founder_tells_no_lies_and_newcomers_come_in_time() -> None:
    settings, lies = NewcomerSettings(lies=SPONSOR_LIES), set()
    for seed in range(60):
        drawn, lying = draw_newcomers(settings, NAMES, random.Random(seed), 9.0)
        assert 1 <= len(drawn.joins) <= 3
        assert all(0 <= at <= 9 and sponsor in NAMES for at, sponsor in drawn.joins.values())
        assert "a" not in lying
        lies |= set(lying.values())
    assert lies == set(SPONSOR_LIES)


@pytest.mark.parametrize(
    "wrong", [{"count": (0, 1)}, {"count": (1, 9)}, {"sponsors": -1}, {"lies": ("x",)}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="newcomers"):
        NewcomerSettings(**wrong)


@pytest.mark.parametrize("name", ["b", GHOST])
def test_another_key_for_a_name_or_any_for_a_name_of_nobody_is_a_violation(name: str) -> None:
    growth = Growth(World(1), DrawnNewcomers("a"), NAMES, {})
    leases = growth.leases
    for at in NAMES:
        leases.believed(at, "", [Update(who, "alive", 0, who, *leases.shown[who]) for who in NAMES])
    growth.judge(NAMES)
    proof = leases.give("key-c", name, "key-evil", 9.0)
    leases.believed("a", "", [Update(name, "alive", 0, "", "key-evil", proof)])
    with pytest.raises(Violation, match=f"the key of {name} is .*, and nodes hold .*evil"):
        growth.judge(NAMES)
