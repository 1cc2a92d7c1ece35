"""Relays on loopback, and nodes that know them, for the tests of transports."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity.certificate import judged, mint
from fednode.identity.trust import Trust
from fednode.transports.address import parse
from fednode.transports.base import Address, OnFrame
from fednode.transports.grpc import GrpcTransport
from fednode.transports.links import Links
from fednode.transports.opening import NoRelay, RelayAt
from fednode.transports.paths import Reach
from fednode.transports.relay import Relay
from fednode.transports.session import Ends, showing
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from fednode.wire.gen import relay_pb2 as pb
from tests.unit.identity.people import made_key, trust

GUARD_S = 180.0
NAMES = {f"n{number}": keys.node_id(made_key(number)) for number in range(1, 40)}


MADE: list[Links] = []
"""Links of a test, which are closed with its last relay."""
RUNNING: list[Relay] = []


def key_of(name: str) -> Ed25519PrivateKey:
    """Return the key of "n1" to "n39"."""
    return made_key(int(name[1:]))


def shown(key: Ed25519PrivateKey, name: str) -> Callable[[], Any]:
    found = key, mint(key, name, b"", time.time())
    return lambda: found


def believes() -> Trust:
    return trust(NAMES, clock=time.time)


@dataclass
class Raised:
    """A relay that runs. refused: what its gate refused."""

    at: RelayAt
    relay: Relay
    tls: Tls
    trust: Trust
    refused: list[tuple[str, str, str]] = field(default_factory=list)


@asynccontextmanager
async def raised(
    number: int = 50, address: str = "127.0.0.1:0", mbit: float = 0.0, watch: bool = True
) -> AsyncIterator[Raised]:
    """Run a relay with the key of a number, at an address."""
    believed = believes()

    def refusal(id: str) -> str:
        return "" if believed.name_of(id) and not believed.is_revoked(id) else "unknown"

    def revoke(proof: bytes) -> None:
        with contextlib.suppress(IdentityError):
            believed.take_revocation(proof)

    relay = Relay(refusal, revoke, mbit)
    RUNNING.append(relay)
    refused: list[tuple[str, str, str]] = []
    key = made_key(number)
    tls = Tls(
        shown(key, "relay"),
        lambda der, _: believed.judge(der),
        lambda *what: refused.append(what),
        relay=relay,
    )
    port = await tls.listen(parse(address))
    watching = asyncio.ensure_future(relay.watch()) if watch else None
    at = RelayAt(f"127.0.0.1:{port}", keys.node_id(key))
    try:
        yield Raised(at, relay, tls, believed, refused)
    finally:
        if watching is not None:
            watching.cancel()
        RUNNING.remove(relay)
        while MADE and not RUNNING:
            await MADE.pop().close()
        await tls.close()


def links_of(name: str, *relays: RelayAt, **more: Any) -> Links:
    """Return a node's links, which belong to nothing else."""
    context = showing(*shown(key_of(name), name)())
    made = Links(relays, lambda: context, lambda der: judged(der, lambda _: "")[0], **more)
    MADE.append(made)
    return made


class Node(GrpcTransport):
    """A node's transport that knows relays. told: what it refused. said: its own records."""

    def __init__(self, name: str, *relays: RelayAt, reach: Reach = "relay", **more: Any) -> None:
        self.name, self.believed = name, believes()
        self.told: list[tuple[str, str, str]] = []
        self.said: list[tuple[str, str, bool]] = []
        self.tls = Tls(
            shown(key_of(name), name),
            self.believed.judge,
            lambda *what: self.told.append(what),
            ways=Ways(
                relays=relays,
                reach=reach,
                id_of=lambda _, who: self.believed.id_of(who),
                say=lambda *what: self.said.append(what),
                **more,
            ),
        )
        super().__init__(self.tls)

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        """Listen, and wait until a relay knows this node."""
        found = await super().listen(address, on_frame)
        if self.tls.links is not None and self.tls.links.links:
            await until(lambda: any(one.up for one in self.tls.links.links))  # type: ignore[union-attr]
        return found


async def until(true: Callable[[], object], limit_s: float = GUARD_S) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(limit_s):
        while not true():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)


HELD: list[Ends] = []
"""Streams of a test, which `emptied` closes."""


def emptied() -> None:
    """Close the streams of a test."""
    while HELD:
        HELD.pop().writer.close()


async def asked(links: Links, first: pb.FromNode) -> tuple[Ends | None, str, str]:
    """Ask a relay for something; return the stream, or the code and sentence of its refusal."""
    try:
        HELD.append(await links._open(links.links[0], first, GUARD_S))
        return HELD[-1], "ok", ""
    except NoRelay as fault:
        return None, fault.code, str(fault)
