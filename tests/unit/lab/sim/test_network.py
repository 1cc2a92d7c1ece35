"""The fate of frames: lost, doubled, delayed, held back and cut, repeatably by a seed."""

from __future__ import annotations

import random

import pytest

from fednode.lab.sim.network import Network


def network(**set_: float) -> Network:
    return Network(random.Random(7), **set_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("faults", "frames", "share"),
    [({}, 1, 1.0), ({"loss": 0.3}, 0, 0.3), ({"duplicates": 0.3}, 2, 0.3)],
)
def test_losses_and_doubles_have_their_shares_alike_for_one_seed(
    faults: dict[str, float], frames: int, share: float
) -> None:
    first, second = network(**faults), network(**faults)
    arrivals = [first.arrivals("a", "b") for _ in range(2000)]
    assert arrivals == [second.arrivals("a", "b") for _ in range(2000)]
    assert sum(len(one) == frames for one in arrivals) / 2000 == pytest.approx(share, abs=0.03)
    delays = [delay for one in arrivals for delay in one]
    assert 0.001 <= min(delays) < 0.01
    assert 0.04 < max(delays) <= 0.05


def test_a_link_is_cut_one_way_until_it_is_mended() -> None:
    one = network()
    one.cut("a", "b")
    assert (one.arrivals("a", "b"), one.passes("a", "b")) == ([], False)
    assert one.arrivals("b", "a")
    assert one.passes("b", "a")
    one.mend("a", "b")
    assert one.arrivals("a", "b")
    assert one.passes("a", "b")


def test_a_clogged_link_holds_arrivals_until_it_is_cleared() -> None:
    one, seen = network(), list[str]()
    assert not one.hold("a", "b", seen.append, "free")
    one.clog("a", "b")
    one.clog("a", "b")  # again: what waits is kept
    assert one.hold("a", "b", seen.append, "first")
    assert one.hold("a", "b", seen.append, "second")
    assert not one.hold("b", "a", seen.append, "other way")
    for act in one.clear("a", "b"):
        act()
    assert seen == ["first", "second"]
    assert one.clear("a", "b") == []
    assert not one.hold("a", "b", seen.append, "free again")


def test_healing_ends_every_fault_and_lets_what_was_held_arrive_in_order() -> None:
    one, seen = network(loss=1.0, duplicates=1.0), list[str]()
    one.cut("a", "b")
    for link in (("c", "a"), ("b", "a")):
        one.clog(*link)
        one.hold(*link, seen.append, "->".join(link))
    for act in one.heal():
        act()
    assert seen == ["b->a", "c->a"]
    assert len(one.arrivals("a", "b")) == 1
    assert not one.hold("b", "a", seen.append, "late")
