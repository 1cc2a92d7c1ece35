"""Whom a simulated node believes in a mesh of peers.yaml, and where a peer is reached."""

from __future__ import annotations

import pytest

from fednode.core.events import Relisted
from fednode.core.types import Update
from fednode.sim.listed import Files
from fednode.sim.world import World
from tests.unit.sim.test_world import world

NAMES = ("a", "b", "c")


def listed(keys: bool = True) -> tuple[World, Files]:
    """Return a mesh of three nodes, each of which lists both others."""
    made = world(names=NAMES)
    files = made.trust = Files(made.hosts, keys)
    for name in NAMES:
        files.write(name, {one: one for one in NAMES if one != name})
    return made, files


def test_a_change_of_a_file_is_told_as_what_is_new_and_what_is_gone() -> None:
    _, files = listed()
    assert files.write("a", {"b": "b", "c": "c"}) is None
    news = Update("b", "alive", 0, "b.2", "key-b"), Update("d", "alive", 0, "d", "key-d")
    assert files.write("a", {"b": "b.2", "d": "d"}) == Relisted(news, ("c",))
    assert (files.lists("a", "a"), files.lists("a", "c"), files.lists("b", "c")) == (1, 0, 1)


def test_with_keys_nobody_connects_to_whom_one_of_both_does_not_list() -> None:
    _, files = listed()
    assert (files.connects("a", "b"), files.refusal("a", "b")) == (True, "")
    files.write("a", {"c": "c"})
    assert {files.connects("a", "b"), files.connects("b", "a")} == {False}
    assert files.refusal("b", "a") == "the key of 'b' belongs to nobody in this mesh"
    assert files.refusal("a", "b") == ""


def test_without_keys_a_node_refuses_whom_it_listed_before_until_it_starts_again() -> None:
    made, files = listed(keys=False)
    files.write("a", {"c": "c"})
    assert files.connects("b", "a")
    assert files.refusal("b", "a") == "'b' is in peers.yaml no more"
    assert files.refusal("d", "a") == "", "the gate knows that it is no member"
    files.write("a", {"b": "b", "c": "c"})
    assert files.refusal("b", "a") == ""
    files.write("a", {"c": "c"})
    made.crash("a")
    made.start("a")
    assert files.refusal("b", "a") == ""


@pytest.mark.parametrize(("keys", "id"), [(True, "key-b"), (False, "")])
def test_only_a_listed_node_itself_tells_its_address(keys: bool, id: str) -> None:
    _, files = listed(keys)
    news = [
        Update("b", "alive", 3, "b.2", "key-x", b"lease"),
        Update("c", "alive", 0, "c.2"),
        Update("d", "alive", 0, "d.2"),
        Update("c", "revoked"),
    ]
    told = Update("b", "alive", 3, "b.2", id)
    assert files.believed("a", "b", news) == (told, Update("c", "alive", 0, "", files.id_of("c")))


def test_names_are_those_of_hosts() -> None:
    _, files = listed()
    assert [files.named(name) for name in "ad"] == [True, False]


def test_a_peer_is_reached_where_it_is_and_nowhere_else() -> None:
    made, _ = listed()
    made.network.places["b"] = "b.2"
    assert not made.network.callable("a", "b", "b")
    assert made.network.callable("a", "b", "b.2")
    assert made.run(lambda: made.kernel("a").view().peers[0].state != "alive", 60.0)
    for name in "ac":
        made.hosts[name].listed["b"] = "b.2"
        made.crash(name)
        made.start(name)
    assert made.hosts["a"].addresses == {"b": "b.2", "c": "c"}
    assert made.run(lambda: made.kernel("a").view().peers[0].state == "alive", 60.0)
