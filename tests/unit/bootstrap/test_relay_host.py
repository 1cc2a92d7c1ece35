"""A relay as a program: whom it admits, what it shows, and how it stops."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fednode.errors import AddressError, ConfigError
from fednode.identity import keys
from fednode.identity.keys import node_id
from fednode.identity.lease import armour
from fednode.transports.opening import RelayAt
from fednode.transports.ports import free_ports
from fednode_bootstrap.relay_host import Admission, Told, key_in, serve
from tests.unit.identity.people import MESH, MESH_KEY, lease, made_key, revocation
from tests.unit.transports.relays import GUARD_S, NAMES, Node, key_of, until


def written(path: Path, *names: str, **more: object) -> Path:
    """Write a peers.yaml that lists these nodes."""
    peers = [{"name": one, "address": "relay", "id": NAMES[one]} for one in names]
    relays = [{"address": "127.0.0.1:1", "id": node_id(made_key(50))}]
    mesh_key = keys.written(MESH_KEY.public_key())
    tree = {"mesh": MESH, "peers": peers, "relays": relays, "mesh_key": mesh_key, **more}
    path.write_text(yaml.safe_dump(tree))
    return path


def test_the_key_is_made_once(tmp_path: Path) -> None:
    assert node_id(key_in(tmp_path)) == node_id(key_in(tmp_path))
    assert (tmp_path / "relay.key").stat().st_mode & 0o077 == 0


def test_admission_is_by_the_file_as_it_was_at_the_start(tmp_path: Path) -> None:
    path = written(tmp_path / "peers.yaml", "n1", "n2")
    admission = Admission(path, tmp_path)
    proof = armour(revocation("n1", key_of("n1"), issued=int(time.time())))
    written(path, "n1", "n3", revoked=[proof])
    assert [admission.trust.admits(NAMES[name]) for name in ("n1", "n2")] == ["", ""]
    assert "belongs to nobody" in admission.trust.admits(NAMES["n3"])
    restarted = Admission(path, tmp_path)
    assert "was revoked" in restarted.trust.admits(NAMES["n1"])
    assert "belongs to nobody" in restarted.trust.admits(NAMES["n2"])
    assert restarted.trust.admits(NAMES["n3"]) == ""


def test_a_revocation_that_a_node_passes_on_outlives_the_process(tmp_path: Path) -> None:
    path = written(tmp_path / "peers.yaml", "n1")
    admission = Admission(path, tmp_path)
    admission.revoke(b"nonsense")
    admission.revoke(revocation("n1", key_of("n1"), signer=key_of("n2"), issued=int(time.time())))
    assert admission.trust.admits(NAMES["n1"]) == ""
    admission.revoke(revocation("n1", key_of("n1"), issued=int(time.time())))
    assert "was revoked" in admission.trust.admits(NAMES["n1"])
    assert "was revoked" in Admission(path, tmp_path).trust.admits(NAMES["n1"])


def test_a_mesh_without_keys_has_no_relay(tmp_path: Path) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text('mesh: m\ninsecure: true\npeers: [{name: a, address: "127.0.0.1:7100"}]\n')
    with pytest.raises(ConfigError, match="a relay knows nodes by their keys"):
        Admission(path, tmp_path)


async def test_it_serves_shows_what_it_does_and_stops(tmp_path: Path) -> None:
    said: list[str] = []
    path, stop = written(tmp_path / "peers.yaml", "n1", "n2"), asyncio.Event()
    port, page = free_ports(2)
    running = asyncio.ensure_future(
        serve(path, tmp_path, f"127.0.0.1:{port}", stop, said.append, f"127.0.0.1:{page}")
    )
    await until(lambda: len(said) == 2)
    at = RelayAt(f"127.0.0.1:{port}", node_id(key_in(tmp_path)))
    assert said[0] == f"relay of {MESH} at {at.address}, id {at.id}"
    assert said[1] == f"health and metrics: http://127.0.0.1:{page}/metrics"
    node, caller, stranger = (Node(name, at) for name in ("n1", "n2", "n3"))

    async def who(frame: bytes, id: str) -> bytes:
        return id.encode()

    await node.listen("relay", who)
    assert await caller.send("relay", b"", GUARD_S, "n1") == NAMES["n2"].encode()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{page}/metrics") as answer:
            read = text_string_to_metric_families(await answer.text())
            found = {one.name: one.value for family in read for one in family.samples}
        async with session.get(f"http://127.0.0.1:{page}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "serving\n")
    assert found["fednode_relay_waiting"] == found["fednode_relay_streams"] == 1
    assert found["fednode_relay_bytes_total"] > 1000
    with pytest.raises(Exception, match="does not admit this node's key"):
        await stranger.send("relay", b"", GUARD_S, "n1")
    assert any(one.startswith("refused: 127.0.0.1:") and "a stranger" not in one for one in said)
    for one in (node, caller, stranger):
        await one.close()
    stop.set()
    await asyncio.wait_for(running, GUARD_S)
    assert "stopped after 1 streams" in said[-1]


async def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    path, port = written(tmp_path / "peers.yaml", "n1"), free_ports(1)[0]
    where = f"127.0.0.1:{port}"
    with pytest.raises(AddressError, match=f"--metrics is {where}"):
        await serve(path, tmp_path, where, asyncio.Event(), lambda _: None, where)


async def test_a_lease_of_the_mesh_key_is_admitted_until_it_ends(tmp_path: Path) -> None:
    admission = Admission(written(tmp_path / "peers.yaml", "n1"), tmp_path)
    now = int(time.time())
    proof = lease("n9", key_of("n9"), issued=now, expires=now + 60)
    assert admission.trust._take(proof, NAMES["n9"]) == ""
    assert admission.trust.admits(NAMES["n9"]) == ""
    admission.trust.clock = lambda: now + 3600 * 24 * 30
    assert "its lease has ended" in admission.trust.admits(NAMES["n9"])


def test_refusals_are_shown_at_first_and_then_tenfold() -> None:
    said: list[str] = []
    told = Told(said.append)
    for _ in range(100):
        told.note("certificate", "192.0.2.1", "a stranger")
    assert said == [
        "refused: a stranger",
        "refused: a stranger (10 times)",
        "refused: a stranger (100 times)",
    ]
