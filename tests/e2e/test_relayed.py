"""Two daemons that open no port: they meet, restart and lose a member through their only relay."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fednode.transports.address import asked_at
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.daemons import CLOSED, ENDLESS, POLL_S, Nodes, alive, running, states
from tests.e2e.test_identity import go_to_desk_of_a
from tests.unit.commands.run import Fednode

pytestmark = pytest.mark.e2e


async def test_nodes_without_ports_meet_restart_are_asked_checked_and_removed(
    tmp_path: Path, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = f"127.0.0.1:{free_ports(1)[0]}"
    nodes = Nodes(tmp_path, "ab", (*CLOSED, *ENDLESS), relay=gate)

    async def met() -> None:
        await nodes.until("a", lambda reply: alive(reply, "b"))
        await nodes.until("b", lambda reply: alive(reply, "a"))

    async with running(tmp_path, "relay", "relay", *nodes.place("relay-1"), "--listen", gate):
        async with nodes.all_running():
            await met()
        async with nodes.all_running():
            await met()
            place = nodes.place("a")
            assert (await fednode.types("status", "b", *place)).startswith("b of mesh m at relay")
            whole = (await fednode.types("status", *place)).splitlines()
            assert [line.split()[:3:2] for line in whole[1:3]] == [
                ["a", "running"],
                ["b", "running"],
            ]
            checked = await fednode.types("check", *place, "--name", "a", *CLOSED[:2])
            assert f"note: The relay {gate}: open." in checked
            assert "does not answer" not in checked
            go_to_desk_of_a(nodes, monkeypatch)
            async with asyncio.timeout(180), nodes.client() as client:
                while not all(one.id for one in await client.peers(asked_at("relay", "a"))):
                    await pause(POLL_S)  # b is alive before its key came with its news
            await fednode.types("remove", "b", "--yes")
            await nodes.until("a", lambda reply: states(reply) == {"b": "revoked"})
            # The relay has learnt it, too, and b gets no place there.
            file = tmp_path / "b" / "fednode.log"
            async with asyncio.timeout(180):
                while "revoked the key of this node" not in await asyncio.to_thread(file.read_text):
                    await pause(POLL_S)
