"""A relay as a program: whom it admits, what it shows, and how it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fednode.errors import AddressError, ConfigError, IdentityError, StateError, Unreachable
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster
from fednode.settings.peers import load_peers
from fednode.transports.address import RelayEntry
from fednode.transports.ports import free_ports
from fednode_bootstrap import relay as relay_program
from fednode_bootstrap.relay import keep_certificate, relay, serve
from tests.command_line import named
from tests.meshes import Mesh
from tests.unit.commands.run import Fednode

GUARD_S = 180.0


def folder(mesh: Mesh, state: Path, **more: object) -> Path:
    """Write the folder of a relay; return it."""
    identity = NodeIdentity.create(state)
    mesh.keys["relay"] = identity.key
    identity.take_certificate(mesh.chain("relay"), mesh.roster())
    peers = [{"name": "a", "address": "127.0.0.1:1"}]
    tree = {"mesh": mesh.mesh, "mesh_key": mesh.mesh_key_text, "peers": peers, **more}
    (state / "peers.yaml").write_text(yaml.safe_dump(tree))
    return state


class Running:
    """A relay that runs, and what it says."""

    def __init__(self, state: Path, *more: str) -> None:
        self.said: list[str] = []
        self.changed, self.stop = asyncio.Event(), asyncio.Event()
        self.at = RelayEntry("relay", f"127.0.0.1:{free_ports(1)[0]}")
        served = serve(state, state / "peers.yaml", self.at.address, self.stop, self.say, *more)
        self.task = asyncio.ensure_future(served)

    def say(self, text: str) -> None:
        self.said.append(text)
        self.changed.set()

    async def until(self, part: str) -> None:
        async with asyncio.timeout(GUARD_S):
            while not any(part in line for line in self.said):
                self.changed.clear()
                change = asyncio.ensure_future(self.changed.wait())
                await asyncio.wait((change, self.task), return_when=asyncio.FIRST_COMPLETED)
                if self.task.done():
                    self.task.result()

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, GUARD_S)


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


async def test_it_serves_shows_what_it_does_and_stops(mesh: Mesh, tmp_path: Path) -> None:
    (page,) = free_ports(1)
    state = folder(mesh, tmp_path / "relay")
    running = Running(state, f"127.0.0.1:{page}")
    await running.until("health and metrics")
    id = NodeIdentity(state).id
    assert running.said[0] == f"relay relay of {mesh.mesh} at {running.at.address}, id {id}"
    assert running.said[1] == f"health and metrics: http://127.0.0.1:{page}/metrics"
    node, caller = mesh.transport("n1", running.at), mesh.transport("n2", running.at)
    await node.listen("relay", who)
    assert node.relay is not None
    await node.relay.up.wait()
    assert await caller.send("relay", b"", GUARD_S, "n1") == mesh.id("n2").encode()
    with pytest.raises(Unreachable, match="n3 does not wait here"):
        await caller.send("relay", b"", GUARD_S, "n3")
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{page}/metrics") as answer:
            text = await answer.text()
        read = text_string_to_metric_families(text)
        found = {one.name: one.value for family in read for one in family.samples}
        async with session.get(f"http://127.0.0.1:{page}/healthz") as answer:
            assert answer.status == 200
    assert found["fednode_relay_waiting"] == found["fednode_relay_streams"] == 1
    assert found["fednode_relay_bytes_total"] > 1000
    assert 'fednode_relay_refusals_total{reason="absent"}' in text
    await mesh.close()
    await running.end()
    assert "stopped after 1 streams" in running.said[-1]


async def test_a_revocation_that_a_node_passes_on_outlives_the_process(
    mesh: Mesh, tmp_path: Path
) -> None:
    state = folder(mesh, tmp_path / "relay")
    mesh.id("n1")
    running = Running(state)
    roster = mesh.roster()
    roster.take_revocation(mesh.revocation("n1"))
    teller = mesh.transport("n2", running.at, roster=roster)
    await teller.listen("relay", who)
    assert teller.relay is not None
    await teller.relay.up.wait()
    await running.end()
    await teller.close()
    again = Running(state)
    gone = mesh.transport("n1", again.at)
    with pytest.raises(Unreachable, match="was revoked"):
        await gone.send("relay", b"", GUARD_S, "n2")
    await again.until("refused: from 127.0.0.1: its key was revoked")
    await again.end()


async def test_what_is_missing_is_said(mesh: Mesh, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    where, stop = f"127.0.0.1:{port}", asyncio.Event()
    state = folder(mesh, tmp_path / "relay")

    def run(state: Path, metrics: str | None = None) -> object:
        return serve(state, state / "peers.yaml", where, stop, print, metrics)

    with pytest.raises(AddressError, match=f"--metrics is {where}"):
        await run(state, where)  # type: ignore[misc]
    peers = state / "peers.yaml"
    peers.write_text('mesh: m\ninsecure: true\npeers: [{name: a, address: "127.0.0.1:7100"}]\n')
    with pytest.raises(ConfigError, match="a relay knows nodes by their certificates"):
        await run(state)  # type: ignore[misc]
    folder(mesh, tmp_path / "other")
    (tmp_path / "other" / "identity" / "node.key").unlink()
    with pytest.raises(StateError, match="key"):
        await run(tmp_path / "other")  # type: ignore[misc]


def test_a_missing_file_is_said(fednode: Fednode, tmp_path: Path) -> None:
    assert named("relay") is relay
    assert fednode("relay", "--state", tmp_path / "relay") == 2
    assert "peers.yaml" in fednode.err


async def test_the_certificate_is_renewed_in_its_last_third(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    state = folder(mesh, tmp_path)
    peers, roster = load_peers(state / "peers.yaml"), mesh.roster()
    identity, asked = NodeIdentity(state), list[object]()
    again = asyncio.Event()

    async def renew(
        transport: object, places: object, identity: NodeIdentity, roster: Roster
    ) -> None:
        asked.append(places)
        if len(asked) == 1:
            raise IdentityError("no")
        identity.take_certificate(mesh.chain("relay"), roster)

    monkeypatch.setattr(relay_program, "RENEWAL_S", 0.0)
    monkeypatch.setattr(relay_program, "renew", renew)
    at = RelayEntry("relay", "127.0.0.1:1")

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            again.set()

    keeping = asyncio.ensure_future(keep_certificate(identity, roster, peers, at, say))
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked == []
    before = identity.own()
    end = identity.end
    identity.clock = roster.clock = lambda: end - 86400
    async with asyncio.timeout(GUARD_S):
        await again.wait()
    keeping.cancel()
    assert asked[0] == [("a", "127.0.0.1:1")]
    assert said[0].endswith("was not renewed: no")
    assert said[1].startswith("the certificate was renewed")
    assert identity.own() is not before
