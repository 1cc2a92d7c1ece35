"""Meet another node without a relay: both connect with each other at once, through both NATs.

A NAT lets in what answers a connection from inside. If two nodes open a connection to each other at
once, each NAT takes the other's packets for such an answer, and one connection comes about (TCP
simultaneous open, RFC 9293, section 3.5). For this both need to know the port that the NAT of the
other gives to a connection. A relay sees that port; a NAT that keeps the ports of its nodes gives
the same one to a second connection from the same port.

The two nodes agree on it over TLS between their own keys, on a stream through the relay. So a relay
cannot make a node dial: it tells a node that asks from which port it comes, and no more. What
it says is dialled once in AGAIN_S for each pair, and only if it is a public address. The new
connection carries TLS between the nodes' keys like any other, with the node that asked as the
client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from fednode.errors import AddressError, FrameError, Unreachable
from fednode.transports import relay_frames as frames
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address
from fednode.transports.links import DIAL_S, Links, NoPath
from fednode.transports.opening import Connect, Link, NoRelay, Streams
from fednode.transports.places import Places
from fednode.transports.session import CHUNK, Ends, drop_unheard
from fednode.wire.gen import relay_pb2 as pb

PAIR_S: Final = 15.0
"""Seconds between two tries of a pair."""
PAIRS_MAX: Final = 1024
MEET_S: Final = 4.0
"""How long both ends try to connect."""
REFUSED_S: Final = 0.2
"""Pause after a NAT refused a packet that came before this node's own had opened it."""

Tell = Callable[[str, str, str], None]
"""Notes what is wrong with somebody: kind, who, a sentence."""


class TooSoon(NoPath):
    """A pair has tried a moment ago; this says nothing of its NATs."""


@dataclass(slots=True)
class Seen:
    """A port of this node, and the address that relays see for it."""

    family: int
    port: int
    place: Endpoint


@dataclass(slots=True)
class Meetings:
    """The meetings of one node, which meets nobody if its setting `reach` is not auto."""

    links: Links
    reach: str = "auto"
    tell: Tell = lambda *_: None
    _tried: dict[str, float] = field(default_factory=dict)  # when, by the other's id
    _places: Places = field(default_factory=Places)

    async def ask(self, stream: Ends, id: str) -> tuple[Ends, Endpoint]:
        """Meet a node; return the connection, and where it leads. Raise NoPath.

        stream: through a relay, of proved keys. The caller proves the other end's key anew.
        """
        async with self._seen() as own:
            stream.writer.write(frames.pack(_meet(str(own.place))))
            said = await _read(stream)
            if said.later:
                raise TooSoon(said.why)
            if not said.address:
                raise NoPath(f"the other node does not meet this one: {said.why or 'no reason'}")
            return await self._connect(own, self._theirs(said.address, id))

    async def answer(self, stream: Ends, id: str) -> tuple[Ends, Endpoint] | None:
        """Meet the node that asks for it on a stream; return as `ask` does, None if that fails.

        The stream is closed.
        """
        try:
            said = await _read(stream)
            self.claim(id)
            theirs = self._theirs(said.address, id)
            async with self._seen() as own:
                stream.writer.write(frames.pack(_meet(str(own.place))))
                await stream.writer.drain()
                return await self._connect(own, theirs)
        except NoPath as fault:
            with contextlib.suppress(OSError):
                no = _meet(why=str(fault)[: frames.WHY_MAX], later=isinstance(fault, TooSoon))
                stream.writer.write(frames.pack(no))
                await stream.writer.drain()
            return None
        finally:
            stream.writer.close()

    def claim(self, id: str) -> None:
        """Begin a try with a node; raise NoPath if it is too soon, or this node meets nobody."""
        now = asyncio.get_running_loop().time()
        if self.reach != "auto":
            raise NoPath(f"its `reach` is {self.reach}")
        if now - self._tried.get(id, -PAIR_S) < PAIR_S:
            raise TooSoon(f"the two nodes tried to meet less than {PAIR_S:g} s ago")
        self._tried.pop(id, None)
        self._tried[id] = now
        if len(self._tried) > PAIRS_MAX:
            del self._tried[next(iter(self._tried))]

    def _theirs(self, address: Address, id: str) -> Endpoint:
        """Return where another node says that it is; raise NoPath for what is not dialled."""
        try:
            place = parse(address)
            if not place.public:
                raise NoPath(f"{id} names {place.host} as its own place, which is not public")
            self._places.use((str(place), id), asyncio.get_running_loop().time())
        except (AddressError, Unreachable) as fault:
            raise NoPath(str(fault)) from fault
        return place

    @asynccontextmanager
    async def _seen(self) -> AsyncIterator[Seen]:
        """Take a fresh port, and ask each relay how it sees it; hold these connections meanwhile.

        Raise NoPath if no relay tells, or if two do not say the same.
        """
        held, found, why = list[Ends](), list[tuple[Seen, Address]](), "no relay answers"
        port, family = 0, 0
        try:
            for link in self.links.links:
                if link.leaving:
                    continue
                remote = await _straight(link)
                if not remote:
                    why = f"{link.address} is reached through a proxy" if link.up else why
                    continue
                if family not in {0, _family(remote)}:
                    continue
                family = _family(remote)
                made = _bound(family, port)
                port = int(made.getsockname()[1])
                try:
                    ends, place = await self.links.ask_where(link, _by(made, remote))
                except NoRelay as fault:
                    why = str(fault)
                    continue
                held.append(ends)
                found.append((Seen(family, port, place), link.address))
            yield self._agreed(found, why)
        finally:
            for ends in held:
                ends.writer.close()

    def _agreed(self, found: list[tuple[Seen, Address]], why: str) -> Seen:
        """Return what the relays see; raise NoPath if nothing, or nothing that may be named."""
        if not found:
            raise NoPath(why)
        for seen, relay in found:
            if not seen.place.public:
                text = f"{relay} sees this node at {seen.place}, which is no public address"
                self.tell("relay", f"relay {relay}", text)
                raise NoPath(text)
        own = found[0][0]
        for seen, relay in found[1:]:
            if seen.place != own.place:
                raise NoPath(
                    f"{found[0][1]} sees this node at {own.place} and {relay} at {seen.place}: its "
                    "NAT gives each connection a port of its own, or a relay is wrong"
                )
        return own

    async def _connect(self, own: Seen, theirs: Endpoint) -> tuple[Ends, Endpoint]:
        """Connect from a port to a place that connects with this port, too; raise NoPath."""
        remote = theirs.host, theirs.port
        if own.family != _family(remote):
            raise NoPath("one of the two nodes has an IPv4 address, and the other an IPv6 address")
        try:
            async with asyncio.timeout(MEET_S):
                while True:
                    made = _bound(own.family, own.port)
                    with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):
                        reader, writer = await _by(made, remote)(theirs)
                        drop_unheard(writer)
                        return Ends(reader, writer), theirs
                    await asyncio.sleep(REFUSED_S)
        except TimeoutError as fault:
            raise NoPath(
                f"no connection through both NATs came about within {MEET_S:g} s: one of them "
                "gives each connection a port of its own, or lets nothing through"
            ) from fault
        except OSError as fault:
            text = fault.strerror or str(fault)
            raise NoPath(f"no connection through both NATs can be opened: {text}") from fault


async def _read(stream: Ends) -> pb.Meet:
    """Return what the other node says; raise NoPath if that is nothing."""
    try:
        async with asyncio.timeout(2 * DIAL_S):
            return frames.from_node(await frames.read(stream.reader)).meet
    except (OSError, TimeoutError, FrameError) as fault:
        raise NoPath("the other node says nothing of where to meet") from fault


def _meet(address: Address = "", why: str = "", later: bool = False) -> pb.FromNode:
    return pb.FromNode(meet=pb.Meet(address=address, why=why, later=later))


async def _straight(link: Link) -> tuple[str, int] | None:
    """Return where a relay is dialled; None if it is lost, or reached through a proxy."""
    writer = next(iter(link.opened), None) if link.up else None
    if writer is None:
        return None
    remote, at = writer.get_extra_info("peername"), parse(link.address)
    with contextlib.suppress(OSError):
        loop = asyncio.get_running_loop()
        known = await loop.getaddrinfo(at.numeric, at.port, type=socket.SOCK_STREAM)
        if remote and any(one[4][:2] == remote[:2] for one in known):
            return str(remote[0]), int(remote[1])
    return None


def _family(remote: tuple[str, int]) -> int:
    return socket.AF_INET6 if ":" in remote[0] else socket.AF_INET


def _bound(family: int, port: int) -> socket.socket:
    """Return a socket at a port (0: any), which others of this process may use as well."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        for option in ("SO_REUSEADDR", "SO_REUSEPORT"):
            if hasattr(socket, option):  # Windows has one of them alone
                made.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
        made.bind(("", port))
    except BaseException:
        made.close()
        raise
    return made


def _by(made: socket.socket, remote: tuple[str, int]) -> Connect:
    """Return what opens a connection from a socket; the socket is closed if that fails."""

    async def connect(_: Endpoint) -> Streams:
        try:
            await asyncio.get_running_loop().sock_connect(made, remote)
        except BaseException:
            made.close()
            raise
        return await asyncio.open_connection(sock=made, limit=CHUNK)

    return connect
