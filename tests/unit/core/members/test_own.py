"""What a node tells about itself, and that its peers learn the address of its last start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fednode.core.events import Delivered, Introduce, Send, Undelivered
from fednode.core.members.own import Own
from fednode.core.members.phases import Phase
from fednode.core.members.swim import PROBE, Swim
from fednode.core.members.table import INCARNATION_MAX
from fednode.core.policy import NodeContext
from fednode.core.settings import LAN
from fednode.core.types import Message, Update
from fednode.testing import frame
from tests.unit.core.scenes import only


def context(name: str = "a", peers: Sequence[str] = ("b", "c"), at: str = "") -> NodeContext:
    where = at or f"{name}:1"
    return frame(
        "local", peers=tuple(peers), mesh="mesh", fingerprint="ab", name=name, address=where
    )


def node(name: str = "a", peers: Sequence[str] = ("b", "c"), at: str = "") -> Swim:
    """Return a node that heard from all its peers."""
    about = context(name, peers, at)
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


def cannot_send(made: Swim, peer: str, to: str) -> None:
    """Let a peer answer that it cannot reach the node."""
    late = context().message(3, Phase.PING)
    made.sent(1.0, Delivered(peer, late, note=f"cannot send to {to}"))


def test_a_node_that_restarts_elsewhere_greets_all_with_its_address() -> None:
    hellos = only(node(at="a:2").start(), Send)
    assert [(one.to, one.message.phase, says(one.message)) for one in hellos] == [
        ("b", Phase.HELLO, ["a:2"]),
        ("c", Phase.HELLO, ["a:2"]),
    ]


def test_pings_tell_the_address_to_a_peer_that_cannot_reach_the_node_until_it_answered() -> None:
    made = node(at="a:2")
    assert pinged(made) == {"b": [], "c": []}
    cannot_send(made, "b", "a:1")
    cannot_send(made, "c", "a:1")
    (told, *_) = only(made.hellos(["b", "c"]), Send)
    made.sent(1.0, Delivered("b", told.message))
    made.sent(1.0, Undelivered("c", told.message, "busy", "it loads"))
    assert pinged(made) == {"b": [], "c": ["a:2"]}


def test_an_answer_to_what_tells_nothing_of_the_address_does_not_count() -> None:
    made = node(at="a:2")
    cannot_send(made, "b", "a:1")
    made.sent(1.0, Delivered("b", context().message(3, Phase.PING)))
    old = replace(context().message(3, Phase.HELLO), members=(Update("a", "alive", 0, "a:1"),))
    made.sent(1.0, Delivered("b", old))
    assert pinged(made) == {"b": ["a:2"], "c": []}


def test_peers_take_the_address_from_the_node_itself_and_call_it_there() -> None:
    made, peer = node(at="a:2"), node("b", ("a", "c"))
    peer.learn(0.0, [Update("a", "alive", 0, "a:1")], "a")
    (news, *_) = only(made.start(), Send)[0].message.members
    assert peer.learn(1.0, [news], "c") == []  # another member may not say it
    assert only(peer.learn(1.0, [news], "a"), Introduce) == [Introduce("a", "a:2")]
    assert peer.members["a"].address == "a:2"


def test_incarnations_rise_by_doubts_and_end_at_a_bound() -> None:
    own = Own(context())
    assert own.contradicts(Update("a", "dead", 1))
    assert own.incarnation == 2
    assert not own.contradicts(Update("a", "dead", 1))
    assert not own.contradicts(Update("a", "alive", 7))
    assert own.incarnation == 7
    assert not own.contradicts(Update("a", "dead", INCARNATION_MAX))
    assert own.incarnation == 7
