"""An introducer's port that is a relay, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fednode.errors import Unreachable
from fednode.identity.enrol import enrol, introducer
from fednode.identity.identity import Identity
from fednode.identity.keys import node_id
from fednode.identity.trust import Trust
from fednode.transports import relay
from fednode.transports.grpc import GrpcTransport
from fednode.transports.opening import RelayAt
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from fednode_bootstrap import serving
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.serving import serve
from tests.unit.identity.people import MESH
from tests.unit.transports.relays import GUARD_S, until


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


async def test_nodes_that_enrol_there_reach_each_other_there_until_one_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A visit ends after a time, and a connection with the relay does not."""
    monkeypatch.setattr(serving, "VISIT_S", 0.2)
    monkeypatch.setattr(serving, "PING_S", 0.05)
    book, stop = Roster(tmp_path / "book", MESH), asyncio.Event()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(serve(book, "127.0.0.1:0", stop, ready.set_result, relay=True))
    at = await ready
    nodes: dict[str, tuple[Tls, GrpcTransport, Identity]] = {}
    for name in ("a", "b"):
        identity = Identity(tmp_path / name, MESH, name)
        trust = Trust(mesh=MESH, listed={}, mesh_key=book.key.public_key())
        ways = Ways(
            relays=(RelayAt(at, node_id(book.key)),),
            reach="relay",
            id_of=lambda _, name, trust=trust: trust.id_of(name),  # type: ignore[misc]
        )
        enrolled = await enrol(identity, introducer(book.mesh_key, at), "relay", book.tokens.new())
        trust.believed("", enrolled.contacts)
        tls = Tls(identity.credentials, trust.judge, lambda *_: None, ways=ways)
        nodes[name] = tls, GrpcTransport(tls), identity
        await nodes[name][1].listen("relay", who)
    links = [tls.links for tls, _, _ in nodes.values()]
    await until(lambda: all(one is not None and one.links[0].up for one in links))
    ends = asyncio.get_running_loop().time() + 0.4
    await until(lambda: asyncio.get_running_loop().time() > ends)
    caller = nodes["b"]
    assert await caller[1].send("relay", b"", GUARD_S, "a") == caller[2].id.encode()
    book.revoke("b", caller[2].id)
    await until(lambda: not links[1].links[0].up)  # type: ignore[union-attr]
    with pytest.raises(Unreachable):
        await caller[1].send("relay", b"", GUARD_S, "a")
    for _, transport, _ in nodes.values():
        await transport.close()
    stop.set()
    await asyncio.wait_for(running, GUARD_S)
    assert relay.PING_S == 2.0
