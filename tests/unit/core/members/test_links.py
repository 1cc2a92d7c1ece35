"""Links by value: which exchanges begin and end as members come and go."""

from __future__ import annotations

from fednode.core.members.links import Links
from fednode.core.members.table import Members
from fednode.core.settings import TopologySettings

RING = TopologySettings(kind="ring")


def live(members: Members, *names: str) -> set[str]:
    for name in names:
        members.heard(name, 1.0, 1)
    return set(names)


def test_in_a_full_graph_every_live_peer_that_moved_is_linked() -> None:
    members, links = Members("bcd"), Links("a", TopologySettings())
    assert links.follow(members, live(members, "c", "b")) == ([], ["b", "c"])
    assert links.follow(members, {"d"}) == ([], [])  # it is not live
    members.suspect("c", "silent")
    assert links.follow(members, {"c"}) == ([], [])  # a suspect is still sent to
    members.bury("c")
    assert links.follow(members, {"c"}) == (["c"], [])
    assert [name in links for name in "bcd"] == [True, False, False]


def test_in_a_full_graph_peers_that_did_not_move_stay_as_they_are() -> None:
    members, links = Members("bc"), Links("a", TopologySettings())
    live(members, "b", "c")
    assert links.follow(members, {"b"}) == ([], ["b"])
    assert links.follow(members, {"b"}) == ([], [])


def test_in_a_ring_a_peer_that_comes_ends_the_link_to_the_one_behind_it() -> None:
    members, links = Members("bcde"), Links("a", RING)
    live(members, "c", "d")
    assert links.follow(members, set()) == ([], ["c", "d"])
    live(members, "b")
    assert links.follow(members, {"b"}) == (["c"], ["b"])
    live(members, "e")
    assert links.follow(members, {"e"}) == (["d"], ["e"])
    members.suspect("b", "silent")
    members.bury("b")
    assert links.follow(members, {"b"}) == (["b"], ["c"])
