"""Open a connection with a relay: for a node's links (node/fednode/transports/links.py)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from OpenSSL import SSL

from fednode.errors import FrameError
from fednode.transports import relay_frames as frames
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address
from fednode.transports.session import (
    CHUNK,
    RELAYING,
    Ends,
    Inner,
    PeerRejected,
    Session,
    drop_unheard,
)
from fednode.wire.gen import relay_pb2 as pb

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[Endpoint], Awaitable[Streams]]
"""Opens a connection, through a proxy if need be; raises OSError or NoRelay."""


@dataclass(frozen=True, slots=True)
class RelayAt:
    """A relay of peers.yaml: its address, and the id of its key."""

    address: Address
    id: str


class NoRelay(Exception):
    """A relay cannot be used. code: its reply, or "" if it gave none."""

    def __init__(self, why: str, code: str = "") -> None:
        super().__init__(why)
        self.code = code


@dataclass(slots=True, eq=False)
class Link:
    """One relay as this node sees it. why: why it does not wait there; "" before the first try.

    admits: the relay was told that strangers may call this node.
    """

    relay: RelayAt
    up: bool = False
    why: str = ""
    draining: bool = False
    admits: bool = False
    answering: int = 0
    opened: weakref.WeakSet[asyncio.StreamWriter] = field(default_factory=weakref.WeakSet)

    @property
    def address(self) -> Address:
        """Return the relay's address."""
        return self.relay.address

    @property
    def state(self) -> str:
        """Return "waiting", "draining", "lost" or "unknown" (not tried yet)."""
        if self.up:
            return "draining" if self.draining else "waiting"
        return "lost" if self.why else "unknown"

    def cut(self) -> None:
        """Drop all connections with the relay, without waiting for what it did not take."""
        for writer in tuple(self.opened):
            writer.transport.abort()
        self.opened.clear()


async def open_directly(endpoint: Endpoint) -> Streams:
    """Open a TCP connection."""
    return await asyncio.open_connection(endpoint.numeric, endpoint.port, limit=CHUNK)


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens connections with relays.

    context: of connections that show this node's certificate. key_of: returns the id of a
    certificate in DER. connect: opens a TCP connection.
    """

    context: Callable[[], SSL.Context]
    key_of: Callable[[bytes], str]
    connect: Connect = open_directly

    async def open(
        self, link: Link, first: pb.FromNode, limit_s: float, early: bytes = b""
    ) -> Ends:
        """Return a connection with a relay after its "ok"; raise NoRelay."""
        where, writer = link.address, None
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await self.connect(parse(where))
                drop_unheard(writer)
                link.opened.add(writer)
                inner = await self._prove(link, Ends(reader, writer))
                inner.write(frames.pack(first) + early)
                data = await frames.read(inner)
                reply = frames.from_relay(data).reply if data else None
            if reply is None or not reply.code:
                raise NoRelay(f"{where} hung up: it does not admit this node's key, or is no relay")
            if reply.code != "ok":
                raise NoRelay(f"{where}: {reply.why or reply.code}", reply.code)
            return inner.ends
        except BaseException as fault:
            if writer is not None:
                writer.transport.abort()
            text = _sentence(where, fault, limit_s)
            if text:
                raise NoRelay(text) from fault
            raise

    async def _prove(self, link: Link, outside: Ends) -> Inner:
        session = Session(self.context(), server=False, offer=RELAYING)
        id = self.key_of(await session.shake_hands(outside))
        if id != link.relay.id:
            host = parse(link.address).host
            raise NoRelay(
                f"{link.address} shows the key {id or '(none of a node)'}, and peers.yaml gives "
                f"the relay the id {link.relay.id}: if a proxy opens TLS here, ask IT to exempt "
                f"{host} from inspection"
            )
        return Inner(session, outside)


def _sentence(where: Address, fault: BaseException, limit_s: float) -> str:
    """Return why a relay cannot be used; "" for what is no fault of a relay."""
    if isinstance(fault, TimeoutError):
        return f"{where} did not answer within {limit_s:g} s"
    if isinstance(fault, PeerRejected | SSL.Error | FrameError):
        host = parse(where).host
        return (
            f"{where} does not answer as a relay does: if a proxy opens TLS on the way, ask IT to "
            f"exempt {host} from inspection"
        )
    if isinstance(fault, OSError):
        return f"nobody answers at {where}"
    return ""
