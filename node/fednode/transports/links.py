"""A node's connections with relays: it waits to be called, it dials others, it takes calls.

A node keeps one connection with each relay, on which the relay calls it. To dial, and to take a
call, the node opens a further connection; after the relay's "ok" that connection carries the
stream. A relay that says nothing for SILENT_S is lost: its streams are closed at once, because TCP
would hold them for minutes. The relay itself is node/fednode/transports/relay.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Sequence
from typing import Any, Final

from OpenSSL import SSL

from fednode.errors import FrameError
from fednode.transports import relay_frames as frames
from fednode.transports.base import Address
from fednode.transports.opening import Connect, Link, NoRelay, Opener, RelayAt, open_directly
from fednode.transports.relay import SILENT_S
from fednode.transports.session import Ends
from fednode.wire.gen import relay_pb2 as pb

DIAL_S: Final = 4.0
"""How long each relay may take to connect this node with another."""
AGAIN_S: Final = 0.5
AGAIN_MAX_S: Final = 1.5
"""Pauses between two tries to wait at a relay, at first and at most; they are drawn around this."""
UNKNOWN_S: Final = 0.1
"""Pause between two looks whether this node has a lease by now."""
DISTRUST_S: Final = 60.0
DISTRUSTED_MAX: Final = 1024
ANSWERING_MAX: Final = 64
"""Calls of one relay that are answered at a time."""

Answer = Callable[[Ends, Address, str], Awaitable[None]]
"""Serves a relayed call until it ends: the stream, the relay's address, and the caller it named."""
Say = Callable[[str, str, bool], None]
"""Records something: kind, sentence, whether it is trouble."""


class NoPath(Exception):
    """A node cannot be reached, with the reason as part of a sentence."""


class Links:
    """All relays of one node. Everything runs on the event loop that made it."""

    def __init__(
        self,
        relays: Sequence[RelayAt],
        context: Callable[[], SSL.Context],
        key_of: Callable[[bytes], str],
        connect: Connect = open_directly,
        say: Say = lambda *_: None,
        proofs: Callable[[], Iterable[bytes]] = lambda: (),
        declined: Callable[[str], str] = lambda _: "",
        known: Callable[[], bool] = lambda: True,
        admits: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up; `wait` begins.

        context: of connections that show this node's certificate. key_of: returns the id of a
        certificate in DER. proofs: returns the revocations that this node knows. declined: returns
        why a caller is not answered, "" if it is. known: tells whether relays can know this node's
        key; until then it does not wait there. admits: tells whether relays may let strangers call
        this node, to ask it for a lease.
        """
        self.links = [Link(relay) for relay in relays]
        self._context, self._key_of = context, key_of
        self._connect, self._say = connect, say
        self._proofs, self._declined, self._known = proofs, declined, known
        self._admits = admits
        self._answer: Answer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._troubled = False
        self._distrusted: dict[tuple[Address, str], float] = {}  # since when, by relay and id
        self.drained: Callable[[Address], None] = lambda _: None
        """Called with the address of a relay that is about to stop."""
        self.came: Callable[[], None] = lambda: None
        """Called when this node begins to wait at a relay."""
        self.regained: Callable[[], None] = lambda: None
        """Called when a relay answers after none did."""

    @property
    def trouble(self) -> str:
        """Return that no relay answers, in a sentence; "" if one does, or none was tried yet."""
        if not self.links or not all(link.why and not link.up for link in self.links):
            return ""
        said = "; ".join(link.why for link in self.links)
        return (
            f"no relay answers, so this node reaches no peer that needs one ({said}): check this "
            "node's own network first, then the relay"
        )

    def wait(self, answer: Answer) -> None:
        """Wait to be called at each relay from now on."""
        self._answer = answer
        for link in self.links:
            self._spawn(self._stay(link))

    async def close(self) -> None:
        """Drop everything. Idempotent."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links:
            link.cut()

    def distrust(self, relay: Address, id: str) -> None:
        """Dial a node through this relay last for DISTRUST_S, because its stream was no good."""
        self._distrusted.pop((relay, id), None)
        self._distrusted[relay, id] = asyncio.get_running_loop().time()
        if len(self._distrusted) > DISTRUSTED_MAX:
            del self._distrusted[next(iter(self._distrusted))]

    async def dial(
        self, id: str, without: Container[Address] = (), early: bytes = b""
    ) -> tuple[Ends, Address]:
        """Return a stream to the node that holds a key, and the address of its relay.

        Relays that answer come first, distrusted ones last. without: relays that are not tried.
        early: the stream's first bytes, which a relay gets with the dial: this saves their way
        there after the relay's "ok". Raise NoPath with the reason of each relay.
        """
        now, faults, answered = asyncio.get_running_loop().time(), list[str](), False

        def order(link: Link) -> tuple[bool, ...]:
            distrusted_at = self._distrusted.get((link.address, id), -DISTRUST_S)
            return now - distrusted_at < DISTRUST_S, not link.up, link.draining

        tried = [link for link in self.links if link.address not in without]
        for link in sorted(tried, key=order):
            try:
                first = pb.FromNode(dial=pb.Dial(to=id))
                ends = await self._open(link, first, DIAL_S, early)
            except NoRelay as fault:
                faults.append(str(fault))
                answered = answered or bool(fault.code)
                continue
            return ends, link.address
        if answered:
            raise NoPath("; ".join(faults))
        raise NoPath(f"no relay answers ({'; '.join(faults)})")

    async def try_each(self) -> list[tuple[Address, str]]:
        """Return each relay's address, and why this node cannot use it; "" if it can.

        It dials the relay's own id, where nobody waits, so that no place of a node is taken.
        """

        async def one(link: Link) -> tuple[Address, str]:
            first = pb.FromNode(dial=pb.Dial(to=link.relay.id))
            try:
                (await self._open(link, first, DIAL_S)).writer.close()
            except NoRelay as fault:
                return link.address, "" if fault.code == "absent" else str(fault)
            return link.address, ""

        return list(await asyncio.gather(*map(one, self.links)))

    # Waiting --------------------------------------------------------------------------------------

    async def _stay(self, link: Link) -> None:
        """Wait at a relay, and return to it whenever it was lost."""
        pause = AGAIN_S
        while True:
            if not self._known():
                await asyncio.sleep(UNKNOWN_S)
                continue
            try:
                await self._wait(link)
            except NoRelay as fault:
                pause = AGAIN_S if link.up else min(AGAIN_MAX_S, 1.6 * pause)
                link.up, link.draining, link.why = False, False, str(fault)
                self._tell(link)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # not all nodes at once

    async def _wait(self, link: Link) -> None:
        """Wait at a relay until it is lost; then raise NoRelay."""
        ends = await self._open(link, pb.FromNode(wait=pb.Wait()), DIAL_S)
        link.up, link.why, link.draining, link.admits = True, "", False, False
        self.came()
        self._tell(link)
        for proof in self._proofs():
            with contextlib.suppress(FrameError):
                ends.writer.write(frames.pack(_revocation(proof)))
        self._open_to_strangers(link, ends)
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    data = await frames.read(ends.reader)
                if not data:
                    raise NoRelay(f"{link.address} hung up")
                self._hear(link, ends, frames.from_relay(data))
        except TimeoutError as fault:
            link.cut()
            raise NoRelay(f"{link.address} said nothing for {SILENT_S:g} s") from fault
        except (OSError, FrameError) as fault:
            raise NoRelay(f"{link.address} was lost: {fault}") from fault
        finally:
            ends.writer.close()

    def _hear(self, link: Link, ends: Ends, said: pb.FromRelay) -> None:
        what = said.WhichOneof("what")
        if what == "ping":
            ends.writer.write(frames.pack(pb.FromNode(pong=pb.Pong())))
            self._open_to_strangers(link, ends)
        elif what == "call":
            why = self._declined(said.call.caller)
            if link.answering >= ANSWERING_MAX:
                why = f"{ANSWERING_MAX} calls are being answered already"
            if why:
                no = pb.Decline(ticket=said.call.ticket, why=why[: frames.WHY_MAX])
                ends.writer.write(frames.pack(pb.FromNode(decline=no)))
            else:
                link.answering += 1
                self._spawn(self._serve(link, said.call))
        elif what == "drain":
            link.draining = True
            self.drained(link.address)

    def _open_to_strangers(self, link: Link, ends: Ends) -> None:
        """Tell a relay whether strangers may call this node, if that is another word than before.

        It is looked at whenever the relay pings.
        """
        if link.admits != (now := self._admits()):
            ends.writer.write(frames.pack(pb.FromNode(admits=pb.Admits(now=now))))
            link.admits = now

    async def _serve(self, link: Link, call: pb.Call) -> None:
        """Take a call, and serve it until it ends."""
        try:
            try:
                first = pb.FromNode(take=pb.Take(ticket=call.ticket))
                ends = await self._open(link, first, DIAL_S)
            finally:
                link.answering -= 1
            assert self._answer is not None
            ends.source = call.source
            try:
                await self._answer(ends, link.address, call.caller)
            finally:
                ends.writer.close()
        except NoRelay:
            pass  # the caller is told by the relay

    def _tell(self, link: Link) -> None:
        """Record once that no relay answers, and that one answers again."""
        trouble = self.trouble
        if trouble and not self._troubled:
            self._say("relay.none", trouble, True)
        elif self._troubled and link.up:
            self._say("relay.again", f"the relay {link.address} answers again", False)
            self.regained()
        self._troubled = bool(trouble)

    async def _open(
        self, link: Link, first: pb.FromNode, limit_s: float, early: bytes = b""
    ) -> Ends:
        """Return a connection with a relay after its "ok"; raise NoRelay."""
        opener = Opener(self._context, self._key_of, self._connect)
        return await opener.open(link, first, limit_s, early)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # asyncio alone may drop a task that nobody refers to
        task.add_done_callback(self._tasks.discard)
        return task


def _revocation(proof: bytes) -> pb.FromNode:
    return pb.FromNode(revocation=pb.Revocation(proof=proof))
