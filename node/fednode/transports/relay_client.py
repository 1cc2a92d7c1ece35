"""A node's end of relays: it waits to be called, takes calls into its own server, dials others.

gRPC reaches a relayed peer through a unix socket of this process: each connection to it becomes a
`Dial` at a relay. A call that comes in is led to the socket on which the node's own server listens.
What runs through is TLS between the two nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import random
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from fednode.core import foreign
from fednode.errors import Unreachable
from fednode.identity.certificates import Credential
from fednode.identity.roster import Roster
from fednode.transports.address import RelayEntry, parse, proxy_options, target_of
from fednode.transports.base import Address
from fednode.transports.credentials import Own, channel_to
from fednode.transports.exchange import opened, wrapped
from fednode.transports.limits import proofs_in
from fednode.transports.relay_service import (
    DIAL,
    INVITATIONS_MAX,
    PING_S,
    REVOCATIONS_MAX,
    STOPPING,
    TAKE,
    TICKET,
    TO,
    WAIT,
    run_ways,
)
from fednode.transports.server import KEEPALIVE, Options, connected_as, socket_folder
from fednode.wire.gen import relay_pb2

CHUNK_BYTES: Final = 256 << 10
AGAIN_S: Final = 0.5
"""Pause before a node waits again at a relay that it lost; it is drawn around this."""
DIAL_S: Final = 4.0
"""How long each relay may take to connect this node with another."""
RENEW_GRACE_S: Final = 30.0
"""How long calls may go on in a channel that another one replaced."""
SILENT_S: Final = 3 * PING_S
PATHS_MAX: Final = 1024
TAKEN_MAX: Final = 256
"""Calls through one relay that this node serves at a time."""
OPTIONS: Final[Options] = (
    *KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 800),
    # How long a connection may take to come up, TLS included: on bad links round trips are long.
    ("grpc.min_reconnect_backoff_ms", 12_000),
    ("grpc.use_local_subchannel_pool", 1),
)
Say = Callable[[str, str, bool], None]
"""Records something: kind, sentence, whether it is trouble."""


@dataclass(slots=True, eq=False)
class Relay:
    """A relay as this node sees it. up: this node waits there. why: why not, if it was tried.

    shown: the certificate that the channel shows. taken: calls that came through it.
    """

    at: RelayEntry
    up: bool = False
    why: str = ""
    channel: Any = None
    shown: Credential | None = None
    taken: int = 0

    @property
    def state(self) -> str:
        """Return "waiting", "lost" or "unknown" (not tried yet)."""
        return "waiting" if self.up else "lost" if self.why else "unknown"


class RelayClient:
    """All relays of one node. Everything runs on the event loop that made it."""

    def __init__(
        self,
        relays: Sequence[RelayEntry],
        own: Own,
        roster: Roster,
        *,
        say: Say = lambda *_: None,
        proxy: str | None = None,
    ) -> None:
        """Set up. roster: relays learn its revocations and invitations. proxy: the setting."""
        self.relays = [Relay(at) for at in relays]
        self._own, self._roster, self._say, self._proxy = own, roster, say, proxy
        self.draining: Callable[[], None] = lambda: None
        """Called when a relay is about to stop."""
        self.up = asyncio.Event()
        """Is set as long as this node waits at a relay."""
        self._folder = socket_folder()
        self.inside = f"{self._folder.name}/in"
        """Path of a socket at which the node's own server is to listen, too."""
        self._paths: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        self._ways: dict[str, Address] = {}
        self._doubted: dict[str, Address] = {}
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._troubled = False

    @property
    def trouble(self) -> str:
        """Return that no relay answers, in a sentence; "" if one does, or none was tried yet."""
        if not self.relays or not all(relay.state == "lost" for relay in self.relays):
            return ""
        said = "; ".join(relay.why for relay in self.relays)
        return (
            f"no relay answers, so this node reaches no peer that needs one ({said}): check this "
            "node's own network first, then the relay"
        )

    def wait(self) -> None:
        """Wait to be called at each relay from now on."""
        for relay in self.relays:
            self._spawn(self._stay(relay))

    def path_to(self, who: str) -> str:
        """Return the gRPC target that leads to a node through a relay."""
        if who in self._paths:
            return self._paths[who]
        if len(self._paths) >= PATHS_MAX:
            raise Unreachable(f"{PATHS_MAX:,} nodes are reached through relays already")
        path = str(Path(self._folder.name) / str(next(self._numbers)))
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        self._spawn(self._lead(who, listening))
        self._paths[who] = f"unix:{path}"
        return self._paths[who]

    def way_to(self, who: str) -> Address:
        """Return the relay through which a node was dialled last, or would be."""
        return self._ways.get(who) or self._sorted(who)[0].at.address

    def doubt(self, who: str) -> bool:
        """Dial a node through another relay from now on; tell whether there is one."""
        used = self._ways.get(who, "")
        if any(relay.up and relay.at.address != used for relay in self.relays):
            self._doubted[who] = used
        return self._doubted.get(who) == used

    def fault(self, who: str) -> str:
        """Return why the last dial of a node failed; "" if it did not."""
        return self._faults.get(who, "")

    async def close(self) -> None:
        while self._tasks:  # a task that is cancelled may just have begun another one
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for relay in self.relays:
            if relay.channel is not None:
                await relay.channel.close()
        self._folder.cleanup()

    def _channel(self, relay: Relay) -> Any:
        """Return the channel to a relay; a new one if this node's certificate was renewed."""
        shown = self._own()
        if relay.channel is not None and relay.shown is not shown:
            self._drop(relay, RENEW_GRACE_S)
        if relay.channel is None:
            endpoint = parse(relay.at.address)
            options = (*OPTIONS, *proxy_options(self._proxy, endpoint, relay=True))
            callee = self._roster.callee(relay.at.name)
            relay.channel = channel_to(target_of(endpoint), shown, callee, options)
            relay.shown = shown
        return relay.channel

    def _drop(self, relay: Relay, grace_s: float | None) -> None:
        """Leave the channel to a relay; its streams may go on for some time."""
        channel, relay.channel = relay.channel, None
        if channel is not None:
            self._spawn(channel.close(grace_s))

    # Waiting --------------------------------------------------------------------------------------

    async def _stay(self, relay: Relay) -> None:
        while True:
            try:
                await self._wait(relay)
            except (grpc.aio.AioRpcError, TimeoutError) as fault:
                relay.why = _sentence(relay, fault)
                if isinstance(fault, TimeoutError):  # its streams would hang for minutes
                    self._drop(relay, None)
                else:  # it shows the revocation to a node that was removed
                    self._roster.learn_revocations(proofs_in(fault))
            drains = relay.up and STOPPING in relay.why
            relay.up = False
            self._tell(relay)
            if drains:
                self.draining()
            await asyncio.sleep(AGAIN_S * random.uniform(0.75, 1.25))  # not all nodes at once

    async def _wait(self, relay: Relay) -> None:
        """Wait at a relay until it is lost; tell it anew what it is to know when that changes."""
        calls = list[Any]()  # the newest comes last
        said: Any = None
        make = relay_pb2.WaitRequest.SerializeToString, relay_pb2.Ticket.FromString
        try:
            while True:
                now = self._own(), self._statement()
                if now != said:
                    said = now
                    calls.append(self._channel(relay).unary_stream(WAIT, *make)(now[1]))
                async with asyncio.timeout(SILENT_S):
                    ticket = await calls[-1].read()
                if ticket is grpc.aio.EOF:
                    await calls[-1].code()  # what it ended with
                    relay.why = f"{relay.at.address} ended the wait"
                    return
                if ticket is None:  # gRPC could not read it
                    relay.why = f"{relay.at.address} sends what is no ticket"
                    return
                while calls[1:]:
                    calls.pop(0).cancel()
                if not relay.up:
                    relay.up, relay.why = True, ""
                    self._tell(relay)
                if ticket.ticket and relay.taken < TAKEN_MAX:
                    self._spawn(self._take(relay, ticket))
        finally:
            for call in calls:
                call.cancel()

    def _statement(self) -> relay_pb2.WaitRequest:
        return relay_pb2.WaitRequest(
            revocations=self._roster.revocations()[-REVOCATIONS_MAX:],
            invitations=self._roster.invitations()[-INVITATIONS_MAX:],
        )

    def _tell(self, relay: Relay) -> None:
        """Record once that no relay answers, and that one answers again."""
        up = any(each.up for each in self.relays)
        (self.up.set if up else self.up.clear)()
        trouble = self.trouble
        if trouble and not self._troubled:
            self._say("relay.none", trouble, True)
        elif self._troubled and relay.up:
            self._say("relay.again", f"the relay {relay.at.address} answers again", False)
        self._troubled = bool(trouble)

    async def _take(self, relay: Relay, ticket: relay_pb2.Ticket) -> None:
        """Lead a call into this node's own server."""
        relay.taken += 1
        try:
            call = await self._call(relay, TAKE, TICKET, ticket.ticket)
            with _cancelled(call):
                reader, writer = await self._enter(ticket.caller)
                with contextlib.closing(writer):
                    await _join(call, reader, writer)
        except (OSError, grpc.aio.AioRpcError):
            pass  # the relay tells the caller
        finally:
            relay.taken -= 1

    async def _enter(self, caller: str) -> Any:
        """Connect with the node's own server, under a name that stands for the caller."""
        mark = hashlib.sha256(caller.encode()).hexdigest()[:16]
        path = Path(self._folder.name) / f"{next(self._numbers)}.{mark}"
        inner = connected_as(path, self.inside)
        try:
            return await asyncio.open_unix_connection(sock=inner, limit=2 * CHUNK_BYTES)
        except BaseException:
            inner.close()
            raise

    # Dialling -------------------------------------------------------------------------------------

    async def _lead(self, who: str, listening: socket.socket) -> None:
        """Lead each connection of a socket to a node, for ever."""

        def out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task that is cancelled before it begins runs no line of its own.
            dial = self._spawn(self._dial(who, reader, writer))
            dial.add_done_callback(lambda _: writer.close())

        server = await asyncio.start_unix_server(out, sock=listening, limit=2 * CHUNK_BYTES)
        async with server:
            await server.serve_forever()

    async def _dial(
        self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Lead a connection of this node to another one, through the first relay that knows it."""
        faults = list[str]()
        for relay in self._sorted(who):
            try:
                call = await self._call(relay, DIAL, TO, who.encode())
            except (grpc.aio.AioRpcError, TimeoutError) as fault:
                faults.append(_sentence(relay, fault))
                continue
            self._ways[who] = relay.at.address
            self._faults.pop(who, None)
            with _cancelled(call), contextlib.suppress(grpc.aio.AioRpcError):
                await _join(call, reader, writer)
            return
        self._faults[who] = "; ".join(faults)

    async def _call(self, relay: Relay, method: str, key: str, value: bytes) -> Any:
        """Return a stream that the relay has accepted; raise AioRpcError or TimeoutError."""
        make = self._channel(relay).stream_stream(method, wrapped, opened)
        call = make(metadata=((key, value),))
        try:
            async with asyncio.timeout(DIAL_S):
                await call.initial_metadata()
                if call.done():
                    await call.read()  # raises what it ended with
        except BaseException:
            call.cancel()
            raise
        return call

    def _sorted(self, who: str) -> list[Relay]:
        """Return the relays in the order in which a node is dialled through them."""
        doubted = self._doubted.get(who, "")
        return sorted(self.relays, key=lambda relay: (not relay.up, relay.at.address == doubted))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _sentence(relay: Relay, fault: grpc.aio.AioRpcError | TimeoutError) -> str:
    where = relay.at.address
    if isinstance(fault, TimeoutError):
        return f"{where} did not answer in time"
    details = foreign.line(fault.details() or "", 200)
    if fault.code() is not grpc.StatusCode.UNAVAILABLE:
        return f"{where}: {details}"
    if "Hostname Verification" in details or "handshake failed" in details:
        return (
            f"{where} does not show the certificate of the relay {relay.at.name!r}: if a proxy "
            f"opens TLS on the way, ask IT to exempt {parse(where).host} from inspection"
        )
    said = any(part in details.lower() for part in ("proxy", STOPPING, "did not take"))
    return f"{where}: {details}" if said else f"nobody answers at {where}"


@contextlib.contextmanager
def _cancelled(call: Any) -> Iterator[None]:
    try:
        yield
    finally:
        call.cancel()


async def _join(call: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes both ways between a stream of gRPC and a socket, until one of them ends."""

    async def out() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await call.write(data)

    async def back() -> None:
        while (data := await call.read()) is not grpc.aio.EOF:
            writer.write(data)
            await writer.drain()

    await run_ways(out(), back())
