"""What a node tells about itself, and that a change of its address reaches each peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fednode.core.events import Delivered, Introduce, Send, Undelivered
from fednode.core.members.own import Own
from fednode.core.members.phases import Phase
from fednode.core.members.swim import PROBE, Swim
from fednode.core.members.table import INCARNATION_MAX
from fednode.core.members.turns import GREETED_MAX
from fednode.core.policy import NodeContext
from fednode.core.settings import LAN
from fednode.core.types import Message, Update
from fednode.testing.player import frame
from tests.unit.core.scenes import only


def context(name: str = "a", peers: Sequence[str] = ("b", "c")) -> NodeContext:
    at = f"{name}:1"
    return frame("local", peers=tuple(peers), mesh="mesh", fingerprint="ab", name=name, address=at)


def node(name: str = "a", peers: Sequence[str] = ("b", "c")) -> Swim:
    """Return a node that heard from all its peers."""
    about = context(name, peers)
    made = Swim(about, LAN, lambda phase: about.message(3, phase))
    for peer in peers:
        made.heard(0.0, peer, 1)
    return made


def says(message: Message, name: str = "a") -> list[str]:
    """Return the addresses that a message tells of a node."""
    return [one.address for one in message.members if one.name == name]


def pinged(made: Swim, rounds: int = 4) -> dict[str, list[str]]:
    """Return what a node's next pings tell each peer of the node's own address."""
    sent = [one for _ in range(rounds) for one in only(made.timer(PROBE), Send)]
    pings = [one for one in sent if one.message.phase == Phase.PING]
    return {one.to: says(one.message) for one in pings}


def test_a_node_that_moves_greets_all_and_its_pings_tell_it_until_each_peer_answered() -> None:
    made = node()
    assert pinged(made) == {"b": [], "c": []}
    hellos = only(made.move("a:2"), Send)
    assert [(one.to, one.message.phase, says(one.message)) for one in hellos] == [
        ("b", Phase.HELLO, ["a:2"]),
        ("c", Phase.HELLO, ["a:2"]),
    ]
    made.sent(1.0, Delivered("b", hellos[0].message))
    made.sent(1.0, Undelivered("c", hellos[1].message, "busy", "it loads"))
    assert pinged(made) == {"b": [], "c": ["a:2"]}


def test_an_answer_to_what_tells_nothing_of_the_address_does_not_count() -> None:
    made = node()
    made.move("a:2")
    made.sent(1.0, Delivered("b", context().message(3, Phase.PING)))
    old = replace(context().message(3, Phase.HELLO), members=(Update("a", "alive", 0, "a:1"),))
    made.sent(1.0, Delivered("b", old))
    assert pinged(made) == {"b": ["a:2"], "c": ["a:2"]}


def test_a_peer_that_cannot_reach_a_node_is_told_its_address_again() -> None:
    made, restarted = node(), node()
    restarted.sent(1.0, Delivered("b", context().message(3, "ping"), note="cannot send to a:0"))
    assert pinged(restarted) == {"b": ["a:1"], "c": []}
    hellos = only(made.move("a:2"), Send)
    made.sent(2.0, Delivered("b", hellos[0].message))
    made.sent(2.0, Delivered("c", hellos[1].message))
    assert pinged(made) == {"b": [], "c": []}
    late = context().message(3, Phase.PING)
    made.sent(3.0, Delivered("b", late, note="cannot send to a:1"))
    assert pinged(made) == {"b": ["a:2"], "c": []}


def test_a_large_mesh_is_told_in_pings_beyond_the_first_greetings() -> None:
    peers = [f"p{number:03}" for number in range(GREETED_MAX + 6)]
    made = node(peers=peers)
    hellos = only(made.move("a:2"), Send)
    assert len(hellos) == GREETED_MAX
    for one in hellos:
        made.sent(1.0, Delivered(one.to, one.message))
    told = pinged(made, len(peers))
    assert sorted(peer for peer, said in told.items() if said) == sorted(
        {*peers} - {one.to for one in hellos}
    )


def test_peers_take_the_address_from_the_node_itself_and_call_it_there() -> None:
    made, peer = node(), node("b", ("a", "c"))
    peer.learn(0.0, [Update("a", "alive", 0, "a:1")], "a")
    (news, *_) = only(made.move("a:2"), Send)[0].message.members
    assert peer.learn(1.0, [news], "c") == []  # another member may not say it
    assert only(peer.learn(1.0, [news], "a"), Introduce) == [Introduce("a", "a:2")]
    assert peer.members["a"].address == "a:2"


def test_incarnations_rise_by_doubts_and_moves_and_end_at_a_bound() -> None:
    own = Own(context())
    own.move("a:2", ())
    assert (own.news.address, own.incarnation) == ("a:2", 1)
    assert not own.contradicts(Update("a", "dead", 0))
    assert own.contradicts(Update("a", "dead", 1))
    assert own.incarnation == 2
    assert not own.contradicts(Update("a", "alive", 7))
    assert own.incarnation == 7
    assert not own.contradicts(Update("a", "dead", INCARNATION_MAX))
    own.incarnation = INCARNATION_MAX
    own.move("a:3", ())
    assert own.incarnation == INCARNATION_MAX
