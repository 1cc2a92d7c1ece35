"""The two addresses of a peer for which peers.yaml and the peer itself say different ones."""

from __future__ import annotations

from fednode.core.events import Effect, Introduce
from fednode.core.members.places import TRIES, Places
from fednode.core.members.table import Members
from fednode.core.types import Update


def told(members: Members, address: str) -> None:
    members.place(Update("b", "alive", 0, address), "b")


def failures(members: Members, places: Places, count: int = TRIES) -> list[Effect]:
    effects = list[Effect]()
    for _ in range(count):
        members.failed("b", 1.0, "nobody answers")
        effects += places.failed("b")
    return effects


def test_a_peer_is_called_in_turn_where_the_file_and_where_it_itself_says_that_it_is() -> None:
    members = Members(("b",))
    places = Places(members)
    told(members, "b:1")
    assert places.filed("b", "b:2") == Introduce("b", "b:2")
    assert failures(members, places, TRIES - 1) == []
    assert failures(members, places, 1) == [Introduce("b", "b:1")]
    assert failures(members, places) == [Introduce("b", "b:2")]
    members.heard("b", 2.0)  # it answers there
    assert failures(members, places, TRIES - 1) == []


def test_what_a_peer_tells_anew_counts_alone() -> None:
    members = Members(("b",))
    places = Places(members)
    told(members, "b:1")
    places.filed("b", "b:2")
    told(members, "b:3")
    assert failures(members, places, 3 * TRIES) == []


def test_a_peer_with_one_address_is_called_there_alone() -> None:
    members = Members(("b",))
    places = Places(members)
    places.filed("b", "b:2")
    told(members, "b:2")
    assert failures(members, places) == []
    told(members, "b:3")
    places.filed("b", "b:3")
    assert failures(members, places, 3 * TRIES) == []
    places.filed("b", "b:4")
    assert failures(members, places) == [Introduce("b", "b:3")]
    assert places.filed("b", "b:5") == Introduce("b", "b:5"), "the file changed once more"
    assert failures(members, places) == [Introduce("b", "b:3")]
