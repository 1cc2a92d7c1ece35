"""Two daemons that open no port: they meet, restart and lose a member through their only relay."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.app.create import mesh_key_file
from fednode.identity import keys
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.daemons import running
from tests.e2e.test_identity import (
    POLL_S,
    Say,
    alive,
    fednode,
    files_of_a,
    start,
    until,
)
from tests.unit.identity.people import SmallMesh

pytestmark = pytest.mark.e2e
__all__ = ["fednode"]
QUICK = ("--set", "tuning.kind=closed-form")


def behind_a_relay(folder: Path, gate: str) -> SmallMesh:
    """Write the folders of nodes a and b and of their relay, and a peers.yaml for all."""
    mesh = SmallMesh("m")
    tree = {
        "mesh": "m",
        "mesh_key": mesh.mesh_key_text,
        "relays": [{"name": "relay-1", "address": gate}],
        "peers": [{"name": name, "address": "relay"} for name in "ab"],
    }
    for name in ("a", "b", "relay-1"):
        mesh.write(folder / name, name)
        (folder / name / "peers.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    (folder / "peers.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return mesh


async def test_nodes_without_ports_meet_restart_are_asked_checked_and_removed(
    tmp_path: Path, fednode: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = f"127.0.0.1:{free_ports(1)[0]}"
    mesh = await asyncio.to_thread(behind_a_relay, tmp_path, gate)
    monkeypatch.setenv("HOME", str(tmp_path))
    await asyncio.to_thread(keys.store, mesh_key_file("m"), mesh.mesh_key)
    asks = ("--peers", str(tmp_path / "peers.yaml"), "--state", str(tmp_path / "a"))

    async def met() -> None:
        for name in "ab":
            other = "b" if name == "a" else "a"
            await until(tmp_path, f"relay:{name}", name, partial(alive_in, other))

    serve = ("relay", "--state", str(tmp_path / "relay-1"), "--listen", gate)
    async with running(tmp_path, "relay", *serve):
        nodes = start(tmp_path, "a"), start(tmp_path, "b")
        async with running(tmp_path, "a", *nodes[0]), running(tmp_path, "b", *nodes[1]):
            await met()
        async with running(tmp_path, "a", *nodes[0]), running(tmp_path, "b", *nodes[1]):
            await met()
            assert (await fednode("status", "b", *asks)).startswith("b of mesh m at relay")
            whole = (await fednode("status", *asks)).splitlines()
            assert [line.split()[:3:2] for line in whole[1:3]] == [
                ["a", "running"],
                ["b", "running"],
            ]
            checked = await fednode("check", *asks, "--name", "a", *QUICK)
            assert f"note: The relay {gate}: open." in checked
            assert "does not answer" not in checked
            await asyncio.to_thread(files_of_a, tmp_path)
            monkeypatch.chdir(tmp_path / "files")
            await fednode("remove", "b", "--yes")
            await until(
                tmp_path,
                "relay:a",
                "a",
                lambda reply: [peer.state for peer in reply.peers] == ["revoked"],
            )
            # The relay has learnt it, too, and b gets no place there.
            file = tmp_path / "b" / "fednode.log"
            async with asyncio.timeout(180):
                while "revoked the key of this node" not in await asyncio.to_thread(file.read_text):
                    await pause(POLL_S)


def alive_in(name: str, reply: Any) -> bool:
    return alive(reply, name)
