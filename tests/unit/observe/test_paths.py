"""What status shows of paths and relays."""

from __future__ import annotations

from fednode.observe.paths import Paths, relayed, sentences, warnings
from fednode.wire.gen import status_pb2
from tests.unit.transports.relays import GUARD_S, Node, raised


async def who(frame: bytes, caller: str) -> bytes:
    return frame


async def test_paths_and_relays_are_read_from_the_gate() -> None:
    async with raised() as relay:
        node, caller = Node("n1", relay.at), Node("n2", relay.at)
        await node.listen("relay", who)
        await caller.listen("relay", who)
        await caller.send("relay", b"", GUARD_S, "n1")
        paths = Paths.of(caller.tls)
        assert paths.path("relay", "n1")[0] == f"relay {relay.at.address}"
        (shown,) = paths.relays()
        assert (shown.address, shown.state, shown.why) == (relay.at.address, "waiting", "")
        assert warnings(paths) == []
        links = caller.tls.links
        assert links is not None
        links.links[0].up, links.links[0].why = False, "nobody answers there"
        assert paths.relays()[0].state == "lost"
        assert warnings(paths) == [links.trouble]
        for one in (node, caller):
            await one.close()


async def test_a_node_without_keys_or_relays_shows_none() -> None:
    assert Paths.of(None).relays() == ()
    node = Node("n1")
    assert Paths.of(node.tls).path("127.0.0.1:1", "n2") == ("", "")
    await node.close()


def test_sentences_name_each_relay_and_the_peers_of_each_reason() -> None:
    lost = status_pb2.Relay(address="r:443", state="lost", why="nobody answers at r:443")
    way, why = "relay s:443", "its address is `relay`"
    reply = status_pb2.StatusReply(
        relays=[lost, status_pb2.Relay(address="s:443", state="waiting")],
        peers=[
            status_pb2.Peer(name="b", path=way, path_why=why),
            status_pb2.Peer(name="c", path="direct"),
            status_pb2.Peer(name="d", path=way, path_why=why),
        ],
    )
    assert relayed(reply) == 2
    assert sentences(reply) == [
        "relay r:443: lost (nobody answers at r:443)",
        "relay s:443: waiting",
        "relayed to b, d: its address is `relay`",
    ]
