"""The ways out of a node: a socket in a private folder for each peer, which leads gRPC there.

For each connection that gRPC opens, a path is opened (node/fednode/transports/paths.py) and carries
the bytes. While a path is relayed, the direct way is tried from time to time; where it works, the
transport opens a new connection, and calls under way end on the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from fednode.errors import Unreachable
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address
from fednode.transports.lines import Lines
from fednode.transports.links import NoPath
from fednode.transports.paths import AGAIN_S, Path, Paths, quietly
from fednode.transports.refusing import Learn, sentence
from fednode.transports.session import BROKEN, CHUNK, Ends, PeerRejected
from fednode.transports.sockets import Sockets

Tell = Callable[[str, str, str], None]
"""Notes a refused connection: kind, source or id, a sentence."""
Key = tuple[Address, str]
"""The address of an exit, and the name of the peer there."""

TRY_S: Final = 5.0
"""How long such a try of the direct way may take."""
LATE_S: Final = 2.0
LATE: Final = 0.9
"""A call without an answer after LATE_S, or after this share of its limit, is late."""
DOUBT_S: Final = 2.0
"""How long the direct way may take to answer, after a call was late."""
OPEN: Final = contextlib.nullcontext()
"""While a call waits for its answer that has one way alone."""


@dataclass(slots=True)
class Exit:
    """The way out to one place.

    name: of the socket. fault: why the last connection failed. barred: because this node's key is
    refused. shown, why: the path of the newest connection in words, and why it is not direct.
    heard_at: when bytes last came. doubted_at: when a late answer last made this node look for
    another path.
    """

    name: str
    server: asyncio.Server
    fault: str = ""
    barred: bool = False
    shown: str = ""
    why: str = ""
    heard_at: float = float("-inf")
    doubted_at: float = float("-inf")
    paths: list[Path] = field(default_factory=list)


class Exits:
    """The exits of one node. Everything runs on the event loop that made it."""

    def __init__(
        self,
        sockets: Sockets,
        paths: Paths,
        lines: Lines,
        tell: Tell,
        task: Callable[[], AbstractContextManager[None]],
        learn: Learn = lambda _: False,
    ) -> None:
        """Set up. task: entered by each task that serves a connection."""
        self._learn = learn
        self._sockets, self.paths = sockets, paths
        self._lines, self._tell, self._task = lines, tell, task
        self._count = 0
        self._again: dict[Key, asyncio.Task[None]] = {}
        self._doubts: dict[Key, asyncio.Task[None]] = {}
        self.open: dict[Key, Exit] = {}
        self.renew: Callable[[Key, bool], None] = lambda *_: None
        """Called with a place that should be connected anew, because a better path is there, and
        whether calls under way end at once."""
        paths.passed = self._passed_over
        if paths.links is not None:
            paths.links.drained = self._leave_relay
            paths.links.came = self._use_relays

    async def to(self, endpoint: Endpoint, who: str) -> str:
        """Return the address that leads gRPC to an endpoint, if its key belongs to `who`.

        It stays open until `shut`. Raise Unreachable if no socket can be opened.
        """
        key = (str(endpoint), who)
        if key not in self.open:
            self._count += 1
            name = f"out-{self._count}"
            server = await self._listen(endpoint, who, name)
            if self.open.setdefault(key, Exit(name, server)).server is not server:
                server.close()  # another call was faster
                self._sockets.drop(name)
        return f"unix:{self._sockets.path(self.open[key].name)}"

    async def _listen(self, endpoint: Endpoint, who: str, name: str) -> asyncio.Server:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(endpoint, who, Ends(reader, writer))

        file = self._sockets.path(name)
        try:
            server = await asyncio.start_unix_server(leave, file, limit=CHUNK)
        except OSError as fault:
            raise Unreachable(f"cannot send to {endpoint}: {fault.strerror}") from fault
        self._sockets.listening(name)
        return server

    async def reopen(self) -> None:
        """Open all exits anew, whose sockets somebody removed; raise Unreachable."""
        for key, exit in tuple(self.open.items()):
            exit.server.close()
            exit.server = await self._listen(parse(key[0]), key[1], exit.name)
            self.renew(key, False)

    def shut(self, endpoint: Endpoint, who: str) -> None:
        """Close an exit that is no longer used."""
        key = (str(endpoint), who)
        for tries in (self._again, self._doubts):
            if trying := tries.pop(key, None):
                trying.cancel()
        exit = self.open.pop(key, None)
        if exit is not None:
            exit.server.close()
            self._sockets.drop(exit.name)

    def close(self) -> None:
        """Close all exits. Idempotent."""
        for tries in (self._again, self._doubts):
            for trying in tries.values():
                trying.cancel()
            tries.clear()
        for exit in self.open.values():
            exit.server.close()
        self.open.clear()

    def fault(self, address: Address, who: str) -> str:
        """Return why the last connection to a place failed; "" if it did not."""
        exit = self.open.get((address, who))
        return exit.fault if exit else ""

    def barred(self, address: Address, who: str) -> bool:
        """Tell whether the last connection to a place failed because this node's key is refused."""
        exit = self.open.get((address, who))
        return exit is not None and exit.barred

    def path(self, address: Address, who: str) -> tuple[str, str]:
        """Return the path to a place in words, and why it is not direct; "" for what is unknown."""
        exit = self.open.get((address, who))
        return ("", "") if exit is None else (exit.shown, exit.why)

    def asking(self, key: Key, limit_s: float) -> AbstractContextManager[None]:
        """Enter while a call waits for its answer: if that comes late, a relay may be the way.

        A firewall that shuts drops what it let through before; TCP notices this after UNHEARD_MS.
        """
        links = self.paths.links
        if links is None or not links.links or self.paths.reach == "direct":
            return OPEN
        return self._watched(key, limit_s)

    @contextlib.contextmanager
    def _watched(self, key: Key, limit_s: float) -> Iterator[None]:
        loop, wait = asyncio.get_running_loop(), min(LATE_S, LATE * limit_s)
        late = loop.call_later(wait, self._doubt, key, loop.time())
        try:
            yield
        finally:
            late.cancel()

    def _doubt(self, key: Key, since: float) -> None:
        """Leave a path that is silent since a call began, at most once in AGAIN_S for each place.

        A direct path is left if the direct way answers no more; one of several relays at once.
        """
        exit, now = self.open.get(key), asyncio.get_running_loop().time()
        if exit is None or key in self._doubts or now - exit.doubted_at < AGAIN_S:
            return
        links, vias = self.paths.links, [path.via for path in exit.paths]
        if links is not None and len(links.links) > 1 and vias and all(vias):
            if exit.heard_at <= since:
                exit.doubted_at = now
                for path in exit.paths:
                    links.distrust(path.via, path.id)
                self.renew(key, False)
        elif vias and not any(vias):
            exit.doubted_at = now
            self._doubts[key] = asyncio.ensure_future(self._elsewhere(key, exit))

    async def _elsewhere(self, key: Key, exit: Exit) -> None:
        """Take a relayed path to a place if the direct way answers no more."""
        endpoint, who, silent_since = parse(key[0]), key[1], exit.doubted_at
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DOUBT_S):
                    if not endpoint.relayed and await quietly(self.paths.direct(endpoint, who)):
                        return
            why = f"calls to {who if endpoint.relayed else endpoint} were not answered any more"
            silent = exit.heard_at <= silent_since
            if silent and await quietly(self.paths.relayed(endpoint, who, why)):
                self.paths.avoid(endpoint, who, why)
                self.renew(key, True)
            else:  # the next late call looks again, because this machine or a relay may be slow
                exit.doubted_at = float("-inf")
        finally:
            self._doubts.pop(key, None)

    async def _serve(self, endpoint: Endpoint, who: str, inside: Ends) -> None:
        """Carry one connection of gRPC."""
        key = (str(endpoint), who)
        with self._task(), _closing(inside):
            try:
                path = await self.paths.open(endpoint, who)
            except NoPath as fault:
                self._blame(key, str(fault))
                return
            except PeerRejected as fault:
                self._blame(key, str(fault))
                self._tell(fault.kind, who or key[0], str(fault))
                return
            except OSError:
                return  # it went away; gRPC calls again
            with _closing(path.outside), self._noted(key, path):
                await self._carry(key, inside, path)

    @contextlib.contextmanager
    def _noted(self, key: Key, path: Path) -> Iterator[None]:
        """Show a path while it carries a connection; look for a better one meanwhile."""
        exit = self.open.get(key)
        if exit is None:
            yield
            return
        exit.shown, exit.why = path.shown, path.why
        exit.paths.append(path)
        again = path.via and self.paths.reach == "auto" and not parse(key[0]).relayed
        if again and key not in self._again:
            self._again[key] = asyncio.ensure_future(self._until_direct(key))
        try:
            yield
        finally:
            exit.paths.remove(path)

    async def _carry(self, key: Key, inside: Ends, path: Path) -> None:
        clock = asyncio.get_running_loop().time

        def heard() -> None:
            exit = self.open.get(key)
            if exit is not None:
                exit.fault, exit.barred, exit.heard_at = "", False, clock()

        where = f"the node behind {path.via}" if path.via else key[0]
        try:
            with self._lines.call(path.id, path.via) as line:
                came = await path.session.carry(path.outside, inside, line, heard)
            said = path.session.refusal
            if not (came or said) and path.via and self.paths.links is not None:
                self.paths.links.distrust(path.via, path.id)
            if not came:
                self._blame(key, sentence(where, said, self._learn), barred=True)
        except PeerRejected as fault:
            if fault.kind in {"relay", BROKEN} and path.via and self.paths.links is not None:
                self.paths.links.distrust(path.via, path.id)
            self._blame(key, str(fault))
            self._tell(fault.kind, key[1] or key[0], str(fault))
        except OSError:
            pass  # it went away; gRPC calls again

    async def _until_direct(self, key: Key) -> None:
        """Try the direct way from time to time while a place is relayed; take it once it works."""
        try:
            while (exit := self.open.get(key)) and any(path.via for path in exit.paths):
                await asyncio.sleep(AGAIN_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TRY_S):
                        if await quietly(self.paths.direct(parse(key[0]), key[1])):
                            self.renew(key, False)
                            return
        finally:
            self._again.pop(key, None)

    def _leave_relay(self, address: Address) -> None:
        """Connect anew what goes through a relay that is about to stop."""
        for key, exit in tuple(self.open.items()):
            if any(path.via == address for path in exit.paths):
                self.renew(key, False)

    def _passed_over(self, fault: NoPath | PeerRejected, who: str) -> None:
        """Tell of a relay that connected this node with another, where a second one did not."""
        if isinstance(fault, PeerRejected):
            self._tell(fault.kind, who, str(fault))

    def _use_relays(self) -> None:
        """Connect at once where nobody was reached, because a relay is back.

        gRPC would wait before it tries again.
        """
        for key, exit in tuple(self.open.items()):
            if exit.fault and not exit.paths:
                self.renew(key, False)

    def _blame(self, key: Key, text: str, barred: bool = False) -> None:
        """Store why the last connection of an exit failed, while the exit is open.

        barred: because the other end refuses this node's key.
        """
        exit = self.open.get(key)
        if exit is not None:
            exit.fault, exit.shown, exit.why, exit.barred = text, "", "", barred


@contextlib.contextmanager
def _closing(ends: Ends) -> Iterator[None]:
    try:
        yield
    finally:
        ends.writer.close()
