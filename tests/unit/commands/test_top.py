"""`fednode top`: the whole mesh, live, and who sent to whom."""

from __future__ import annotations

import json
from pathlib import Path

from fednode.commands import top
from fednode.wire.gen import status_pb2
from tests.unit.commands.canned import drawn, node
from tests.unit.commands.run import Fednode


def test_top_shows_the_whole_mesh(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("top", "--times", "1") == 0
        for part in ("1 of 2 nodes answer", "mesh clinic, zerodfl", "no answer", "12/150", "b is"):
            assert part in fednode.out
        assert fednode("top", "--times", "2", "--format", "json") == 0
        looks = [json.loads(line) for line in fednode.out.splitlines()]
        assert len(looks) == 2
        assert looks[0]["nodes"][address]["round"] == 12
        assert looks[0]["nodes"]["127.0.0.1:7192"] is None


def test_the_matrix_says_who_sent_to_whom() -> None:
    traffic = status_pb2.Traffic(messages_out=1234)
    one = status_pb2.StatusReply(name="a", peers=[status_pb2.Peer(name="b", traffic=traffic)])
    shown = drawn(top.page([(("a", "x"), one), (("b", "y"), None)], {}, "12:00:00"))
    lines = [line.split() for line in shown.splitlines()]
    assert ["a", "·", "1,234"] in lines
    assert ["b", "?", "·"] in lines
