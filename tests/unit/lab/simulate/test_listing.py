"""Changes of peers.yaml in a scenario: what a seed draws, how it is played, how it is judged."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fednode.core.events import Answer, Received, Relisted, Send
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import Update
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.listing import (
    BACK,
    GONE_LEFT,
    GONE_OFF,
    GONE_RUNS,
    MOVES,
    NEW,
    REMOVALS,
    RESTARTS,
    DrawnChange,
    DrawnListing,
    GoneStayOut,
    Listing,
    ListingSettings,
    draw_listing,
    place_listing,
)
from fednode.learn.closed_form import ClosedFormLearner
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.exchange import ZeroDFL
from fednode.sim.setup import Setup
from fednode.sim.world import World
from tests.unit.core.scenes import message

NAMES = ("a", "b", "c")
END_S = 10.0


def change(at: float, kind: str, name: str, address: str = "") -> DrawnChange:
    return DrawnChange(at=at, kind=kind, name=name, address=address or name, acts_s=0.5)


def played(*changes: DrawnChange, stale: float = 0.0, absent: tuple[str, ...] = ()) -> Listing:
    """Return the listing of a mesh of three nodes, after all changes."""
    made = World(1)
    drawn = DrawnListing(keys=True, remote=False, absent=absent, changes=changes)
    listing = place_listing(made, ListingSettings(stale=stale), drawn, NAMES, 1, END_S)
    assert listing is not None
    rounds = RoundSettings(max=5, start=StartSettings(timeout_s=5.0))
    places = made.network.places
    setup = Setup(policy=ZeroDFL, config=ZeroDFLConfig(), rounds=rounds, places=places)
    for name in (*NAMES, *drawn.later):
        made.place_one(setup, name, (), ClosedFormLearner(name), 0.2)
    listing.begin()
    made.checkers.append(GoneStayOut())
    made.start(*(name for name in NAMES if name not in absent))
    made.run(lambda: False, END_S)
    return listing


def settled(listing: Listing) -> str:
    """Give all files the same members; return what is wrong a minute later."""
    listing.settle()
    names = sorted(listing.drawn.last(NAMES))
    listing.world.run(lambda: not listing.wrong(names), 60.0)
    return listing.wrong(names)


def test_changes_are_drawn_in_time_and_each_can_be_made() -> None:
    settings, kinds = ListingSettings(changes=(0, 8)), set()
    for seed in range(80):
        drawn = draw_listing(settings, NAMES, random.Random(seed), END_S)
        assert [one for one, _ in drawn.steps(NAMES)] == list(drawn.changes)
        assert all(0 <= one.at <= END_S for one in drawn.changes)
        assert all(len(entries) >= 2 for _, entries in drawn.steps(NAMES))
        kinds |= {one.kind for one in drawn.changes}
    assert kinds == {NEW, BACK, MOVES, RESTARTS, *REMOVALS}


def test_a_smaller_case_leaves_out_what_cannot_be_made_any_more() -> None:
    changes = change(1.0, NEW, "new1"), change(2.0, GONE_OFF, "b"), change(3.0, BACK, "b")
    drawn = DrawnListing(keys=True, remote=False, changes=changes[2:])
    assert drawn.last(NAMES) == ["a", "b", "c"]
    moved = change(3.0, MOVES, "new1", "new1.2")
    assert not DrawnListing(keys=True, remote=False, changes=(moved,)).steps(NAMES)
    whole = DrawnListing(keys=False, remote=True, absent=("c",), changes=changes)
    assert (whole.last(NAMES), whole.later) == (["a", "b", "c", "new1"], ["new1"])
    assert str(whole).startswith("no keys, waits for all; off at first: c; 1.00 s new1 new")


@pytest.mark.parametrize(
    "wrong", [{"changes": (-1, 1)}, {"changes": (1, 99)}, {"stale": 2.0}, {"remote": -1.0}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="listing"):
        ListingSettings(**wrong)


@pytest.mark.parametrize("kind", [MOVES, RESTARTS])
@pytest.mark.parametrize("stale", [0.0, 1.0])
def test_a_node_at_another_address_is_found_although_files_name_the_old_one(
    kind: str, stale: float
) -> None:
    listing = played(change(1.0, kind, "b", "b.2"), stale=stale)
    assert listing.world.hosts["a"].listed["b"] == ("b" if stale else "b.2")
    assert settled(listing) == ""
    assert listing.world.hosts["a"].addresses["b"] == "b.2"


@pytest.mark.parametrize("kind", REMOVALS)
def test_a_removed_node_is_off_or_refused_and_comes_back(kind: str) -> None:
    removed = change(1.0, kind, "b")
    listing = played(removed)
    assert (listing.world.hosts["b"].kernel is not None) == (kind == GONE_RUNS)
    assert settled(listing) == ""
    assert [peer.state for peer in listing.world.kernel("a").view().peers] == ["left", "alive"]
    back = played(removed, change(3.0, BACK, "b"))
    assert settled(back) == ""
    assert [peer.state for peer in back.world.kernel("a").view().peers] == ["alive", "alive"]


def test_who_leaves_and_comes_back_at_once_starts_again() -> None:
    left, back = change(9.5, GONE_LEFT, "b"), change(9.6, BACK, "b")
    assert settled(played(left, back)) == ""


def test_a_listed_node_that_is_off_at_first_starts_unless_it_is_removed() -> None:
    assert settled(played(absent=("b",))) == ""
    gone = played(change(0.0, GONE_OFF, "b"), absent=("b",))
    assert settled(gone) == ""
    assert gone.world.hosts["b"].kernel is None


def test_what_is_wrong_is_named() -> None:
    listing = played()
    assert settled(listing) == ""
    listing.world.hosts["a"].addresses["b"] = "b.9"
    with pytest.raises(Violation, match=r"b is at b, and a calls it at b\.9"):
        listing.judge(NAMES)
    listing.world.hosts["a"].addresses["b"] = "b"
    listing.world.tell("a", Relisted((), ("c",)))
    assert listing.wrong(NAMES) == "['a', 'b', 'c'] are listed, and a sees {'b': 'alive'}"
    listing.world.crash("c")
    assert listing.wrong(["c"]) == "c is off"


def judge() -> tuple[World, GoneStayOut]:
    made, checker = played().world, GoneStayOut()
    checker.started(made, "a")
    with pytest.raises(Violation, match="sees b as alive and does not list it"):
        checker.stepped(made, "a", Relisted((), ("b",)), [])
    return made, checker


def test_a_message_of_a_peer_that_is_gone_is_neither_taken_nor_answered_by_another() -> None:
    made, checker = judge()
    came = Received(message("hello", "b"), 7)
    checker.stepped(made, "a", came, [Answer(7, "refused")])
    with pytest.raises(Violation, match="takes a 'hello' of b, which is gone"):
        checker.stepped(made, "a", came, [Answer(7, "ok")])
    with pytest.raises(Violation, match="sends a 'ping' to b, which it does not list"):
        checker.stepped(made, "a", came, [Send("b", message("ping", "a"))])
    checker.stepped(made, "a", came, [Send("b", message("vouch", "a"))])
    made.tell("a", Relisted((), ("b",)))
    checker.stepped(made, "a", Relisted((Update("b", "alive", 0, "b"),)), [])
    checker.stepped(made, "a", came, [Answer(7, "ok"), Send("b", message("ping", "a"))])
