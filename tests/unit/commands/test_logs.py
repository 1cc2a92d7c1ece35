"""`fednode logs`: the events of one node and of all."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.commands.canned import node
from tests.unit.commands.run import Fednode


def test_logs_of_one_node_and_of_all(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("logs", "a") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a info", "a warning"]
        assert fednode("logs", "a", "--level", "warning") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a warning"]
        assert fednode("logs") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a: a info", "a: a warning"]
        assert fednode("logs", address, "--format", "json") == 0
        first = json.loads(fednode.out.splitlines()[0])
        assert (first["level"], first["event"], first["fields"]) == ("info", "kind", {"peer": "b"})
    assert fednode.fault("logs", "b") == "b at 127.0.0.1:7192 does not answer: start it."
