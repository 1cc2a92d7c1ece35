"""Open the way to a peer: a proved TLS connection, direct or through a relay.

By default the direct way is tried first; the relay joins DIRECT_FIRST_S later, or at once if the
direct way failed lately. The first connection whose key is proved wins, and the other try ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from OpenSSL import SSL

from fednode.transports.address import Endpoint
from fednode.transports.base import Address
from fednode.transports.links import Links, NoPath
from fednode.transports.opening import Connect, NoRelay, open_directly
from fednode.transports.session import H2, Ends, PeerRejected, Session, drop_unheard

HANDSHAKE_S: Final = 10.0
"""Enough for a node that shares its processor with many others; it ends those who say nothing."""
DIRECT_FIRST_S: Final = 0.5
"""How long the direct way is tried alone."""
AGAIN_S: Final = 15.0
"""Seconds between two tries of the direct way, while a pair is relayed."""
LEFT_MAX: Final = 1024
"""Peers whose failed direct ways are remembered."""

Reach = Literal["auto", "direct", "relay"]
"""How peers are dialled: see the setting `reach`."""
Judge = Callable[[bytes, str], tuple[str, str]]
"""Takes a certificate in DER and its required name or ""; returns its id, and a refusal or ""."""
IdOf = Callable[[Address, str], str]
"""Returns the id of the node with an address and a name (or "", if no name is known); or ""."""


@dataclass(slots=True)
class Path:
    """A proved connection. id: of the other end. via: the relay's address; "" if direct.

    why: why it is not direct; "" if it is.
    """

    session: Session
    outside: Ends
    id: str
    via: Address = ""
    why: str = ""

    @property
    def shown(self) -> str:
        """Return the path in words: "direct", or "relay HOST:PORT"."""
        return f"relay {self.via}" if self.via else "direct"


@dataclass(slots=True)
class Paths:
    """Opens paths from one node.

    context: of connections that show this node's certificate. links: the relays; None if there are
    none. offer: what to speak (ALPN).
    """

    context: Callable[[], SSL.Context]
    judge: Judge
    id_of: IdOf = lambda *_: ""
    links: Links | None = None
    reach: Reach = "auto"
    connect: Connect = open_directly
    offer: bytes = H2
    passed: Callable[[NoPath | PeerRejected, str], None] = lambda *_: None
    """Called with what was wrong with a relay's stream to a name, where another relay had a good
    one."""
    _failed: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)

    async def open(self, endpoint: Endpoint, who: str) -> Path:
        """Return a proved path to a peer.

        Raise NoPath with a sentence that tells why there is none, and PeerRejected if only a node
        with another key answers.
        """
        relayed = self.reach == "relay" or endpoint.relayed
        if self.reach == "direct" and endpoint.relayed:
            raise NoPath("it is reached through a relay alone, and `reach` is direct here")
        if self.links is None or not self.links.links or self.reach == "direct":
            if relayed:
                raise NoPath("it is reached through a relay, and peers.yaml names none")
            return await self.direct(endpoint, who)
        if relayed:
            why = "its address is `relay`" if endpoint.relayed else "`reach` is relay here"
            return await self.relayed(endpoint, who, why)
        at, why = self._failed.get((str(endpoint), who), (-AGAIN_S, ""))
        lately = asyncio.get_running_loop().time() - at < AGAIN_S
        return await self._race(endpoint, who, why if lately else "")

    async def direct(self, endpoint: Endpoint, who: str) -> Path:
        """Return a proved direct path; raise NoPath or PeerRejected."""
        try:
            path = await self._direct(endpoint, who)
        except (NoPath, PeerRejected) as fault:
            self.avoid(endpoint, who, str(fault))
            raise
        self._failed.pop((str(endpoint), who), None)
        return path

    def avoid(self, endpoint: Endpoint, who: str, why: str) -> None:
        """Take a relay at once for AGAIN_S, because the direct way does not work."""
        key = str(endpoint), who
        self._failed.pop(key, None)
        self._failed[key] = asyncio.get_running_loop().time(), why
        if len(self._failed) > LEFT_MAX:
            del self._failed[next(iter(self._failed))]

    async def _race(self, endpoint: Endpoint, who: str, failed: str) -> Path:
        """Try the direct way and the relays; return what is proved first.

        failed: why the direct way failed a moment ago; "" if it did not.
        """
        direct = None if failed else asyncio.ensure_future(self.direct(endpoint, who))
        tries: list[asyncio.Future[Path]] = [] if direct is None else [direct]
        chosen = None
        try:
            if direct is not None:
                await asyncio.wait(tries, timeout=DIRECT_FIRST_S)
            chosen = _first(tries)
            if chosen is None:
                slow = failed or "it did not answer directly at once"
                tries.append(asyncio.ensure_future(self.relayed(endpoint, who, slow)))
                chosen = await _won(tries)
            if chosen is None:
                raise self._both(failed, tries)
            path = chosen.result()
            if path.via and direct is not None and direct.done():
                path.why = str(direct.exception())
            return path
        finally:
            for way in tries:
                if way is not chosen:
                    _give_up(way)

    def _both(self, failed: str, tries: list[asyncio.Future[Path]]) -> Exception:
        """Return what to raise where the direct way and the relays failed."""
        faults = [way.exception() for way in tries]
        for fault in faults:
            if isinstance(fault, PeerRejected):
                return fault
        said = [failed] if failed else []
        return NoPath("; ".join((*said, *(str(fault) for fault in faults))))

    async def _direct(self, endpoint: Endpoint, who: str) -> Path:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                streams = await self.connect(endpoint)
        except socket.gaierror as fault:
            raise NoPath(f"the name {endpoint.host} does not resolve") from fault
        except NoRelay as fault:  # a proxy's words
            raise NoPath(str(fault)) from fault
        except (OSError, TimeoutError) as fault:
            raise NoPath(f"nobody answers at {endpoint}") from fault
        drop_unheard(streams[1])
        session = Session(self.context(), server=False, offer=self.offer)
        return await self._prove(Ends(*streams), session, endpoint, who)

    def _id(self, endpoint: Endpoint, who: str) -> str:
        """Return the id of a node that is reached through a relay; raise NoPath."""
        id = endpoint.host if endpoint.relayed else ""
        id = self.id_of(str(endpoint), who) or id
        if not id:
            text = f"the id of {who!r} is not known here" if who else "no name says whom to call"
            raise NoPath(f"a relay calls nodes by their ids, and {text}")
        return id

    async def relayed(self, endpoint: Endpoint, who: str, why: str) -> Path:
        """Return a proved path through a relay; raise NoPath or PeerRejected.

        why: why it is not direct.
        """
        assert self.links is not None
        id = self._id(endpoint, who)
        refused: dict[Address, NoPath | PeerRejected] = {}
        while True:
            session = Session(self.context(), server=False, offer=self.offer)
            try:
                ends, via = await self.links.dial(id, refused, session.hello())
            except NoPath:
                if refused:
                    raise next(iter(refused.values())) from None
                raise
            try:
                path = await self._prove(ends, session, endpoint, who, via)
                if not path.id.startswith(id):  # a newcomer knows the beginning of an id alone
                    path.outside.writer.close()
                    text = f"{path.id} answers at the relay {via}, which was asked for {id}"
                    raise PeerRejected("relay", text)
            except (NoPath, PeerRejected) as fault:
                refused[via] = fault
                self.links.distrust(via, id)
                continue
            for wrong in refused.values():
                self.passed(wrong, who)
            path.why = why
            return path

    async def _prove(
        self, outside: Ends, session: Session, endpoint: Endpoint, who: str, via: str = ""
    ) -> Path:
        """Shake hands, and judge the other end's certificate; raise NoPath or PeerRejected."""
        where = f"the relay {via}" if via else str(endpoint)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                shown = await session.shake_hands(outside)
            id, reason = self.judge(shown, who)
            if reason:
                text = f"{id or 'a stranger'} answers at {where}: {reason}"
                raise PeerRejected("relay" if via else "certificate", text)
            return Path(session, outside, id, via)
        except BaseException as fault:
            outside.writer.close()
            if isinstance(fault, TimeoutError):
                raise NoPath(f"{where} does not speak TLS within {HANDSHAKE_S:g} s") from fault
            if isinstance(fault, SSL.Error | OSError):
                text = f"{where} refused the connection, or does not speak TLS"
                raise NoPath(text) from fault
            if via and isinstance(fault, PeerRejected) and fault.kind == "handshake":
                raise NoPath(f"the stream through {where} broke: {fault}") from fault
            raise


def _first(tries: list[asyncio.Future[Path]]) -> asyncio.Future[Path] | None:
    """Return a try that ended well; None if there is none."""
    return next((way for way in tries if way.done() and way.exception() is None), None)


async def _won(tries: list[asyncio.Future[Path]]) -> asyncio.Future[Path] | None:
    """Return the first try that ends well; None once all failed."""
    while not (chosen := _first(tries)):
        pending = [way for way in tries if not way.done()]
        if not pending:
            return None
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    return chosen


def _give_up(way: asyncio.Future[Path]) -> None:
    """End a try that is not needed, and close a path that it opened all the same."""

    def end(done: asyncio.Future[Path]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().outside.writer.close()

    way.cancel()
    way.add_done_callback(end)


async def quietly(work: Coroutine[Any, Any, Path]) -> bool:
    """Tell whether a path can be opened; close it again."""
    with contextlib.suppress(NoPath, PeerRejected):
        path = await work
        path.outside.writer.close()
        return True
    return False
