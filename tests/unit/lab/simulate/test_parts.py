"""The parts of a scenario that change the mesh itself are asked one after the other."""

from __future__ import annotations

import pytest

from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.parts import Parts
from tests.unit.lab.simulate.test_listing import NAMES, played, settled


def test_without_parts_nothing_is_wrong() -> None:
    parts = Parts()
    parts.begin()
    parts.settle()
    assert parts.wrong(NAMES) == ""
    parts.judge(NAMES)


def test_what_is_wrong_with_a_part_is_wrong() -> None:
    listing = played()
    assert settled(listing) == ""
    parts = Parts(listing=listing)
    assert parts.wrong(NAMES) == ""
    listing.world.crash("b")
    assert parts.wrong(NAMES) == "b is off"
    with pytest.raises(Violation, match="b is off"):
        parts.judge(NAMES)
    parts.settle()
    assert listing.world.hosts["b"].kernel is not None
