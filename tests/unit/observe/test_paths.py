"""What status shows of paths and relays."""

from __future__ import annotations

from fednode.observe.paths import Paths, relayed, sentences, warnings
from fednode.wire.gen import status_pb2
from tests.meshes import Mesh

GUARD_S = 180.0


async def who(frame: bytes, caller: str) -> bytes:
    return frame


async def test_paths_and_relays_are_read_from_the_transport() -> None:
    mesh = Mesh()
    async with mesh.relay() as relay:
        node, caller = mesh.transport("b", relay.at), mesh.transport("a", relay.at)
        for one in (node, caller):
            await one.listen("relay", who)
            assert one.relay is not None
            await one.relay.up.wait()
        await caller.send("relay", b"x", GUARD_S, "b")
        client = caller.relay
        assert client is not None
        paths = Paths.of(caller)
        assert paths.path("relay", "b")[0] == f"relay {relay.at.address}"
        (shown,) = paths.relays()
        assert (shown.address, shown.state, shown.why) == (relay.at.address, "waiting", "")
        assert warnings(paths) == []
        client.relays[0].up, client.relays[0].why = False, "nobody answers there"
        assert paths.relays()[0].state == "lost"
        assert warnings(paths) == [client.trouble]
        for one in (node, caller):
            await one.close()


async def test_a_node_without_keys_or_relays_shows_none() -> None:
    assert Paths().relays() == ()
    node = Mesh().transport("a")
    assert Paths.of(node).path("127.0.0.1:1", "b") == ("", "")
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
