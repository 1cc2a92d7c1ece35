"""Send messages to peers: each peer has its own bounded outbox, so nothing slow delays anything.

A request to ping a third node waits for that node's answer, so it is sent apart from the outbox.
A message to several peers is encoded once; a long one beside the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Final

from fednode.core.events import Event, Record, Send, Undelivered, acknowledged
from fednode.core.types import Dtype, Phase
from fednode.errors import AddressError, FednodeError, FrameError, Unreachable
from fednode.observe.telemetry import Telemetry
from fednode.transports.base import Address, Transport
from fednode.wire import codec
from fednode.wire.codec import Broadcasts, Outgoing

OUTBOX_MAX: Final = 32
LONG_BYTES: Final = 2**20
"""Messages with this many bytes of arrays are encoded in a thread."""
SEND_TIMEOUT_S: Final = 5.0
SECONDS_PER_MIB: Final = 1.0

Outbox = asyncio.Queue[tuple[Send, Outgoing]]
Spawn = Callable[[Coroutine[None, None, None]], object]


class Sender:
    """The outboxes of one node.

    addresses: where each peer listens; the driver changes it. dtype: the number format of messages
    that name none. post: takes the event that says how a send ended. spawn: runs a task.
    """

    def __init__(
        self,
        transport: Transport,
        addresses: MutableMapping[str, Address],
        telemetry: Telemetry,
        *,
        dtype: Dtype,
        post: Callable[[Event], None],
        spawn: Spawn,
    ) -> None:
        self._transport = transport
        self._addresses = addresses
        self._telemetry = telemetry
        self.dtype: Dtype = dtype
        self._post = post
        self._spawn = spawn
        self._outboxes: dict[str, Outbox] = {}
        self._broadcasts = Broadcasts()
        self._encoding = asyncio.Lock()
        self._errands = 0  # under way
        self._unsent: set[str] = set()

    def open(self, peer: str) -> None:
        """Give a peer an outbox, if it has none."""
        if peer not in self._outboxes:
            self._outboxes[peer] = asyncio.Queue(OUTBOX_MAX)
            self._spawn(self._send_all(peer, self._outboxes[peer]))

    def send(self, effect: Send) -> None:
        """Put a message into its peer's outbox; post Undelivered if there is no room."""
        outbox, reason = self._outboxes.get(effect.to), ""
        errand = effect.message.phase == Phase.INDIRECT
        if outbox is None:
            reason = f"this node knows no address of {effect.to}"
        elif outbox.full():
            reason = f"the outbox of {effect.to} holds {OUTBOX_MAX} messages already"
        elif errand and self._errands >= OUTBOX_MAX:
            reason = f"{OUTBOX_MAX} errands are under way already"
        outgoing = self._broadcasts.outgoing(effect.message, self.dtype)
        if reason:
            self._post(Undelivered(effect.to, effect.message, "busy", reason, sent=False))
        elif errand:
            self._errands += 1
            self._spawn(self._send_errand(effect, outgoing))
        elif outbox is not None:
            outbox.put_nowait((effect, outgoing))

    async def emptied(self) -> None:
        await asyncio.gather(*(outbox.join() for outbox in self._outboxes.values()))

    async def _send_all(self, peer: str, outbox: Outbox) -> None:
        while True:
            effect, outgoing = await outbox.get()
            self._post(await self._sent(peer, outgoing, effect.limit_s))
            outbox.task_done()
            del effect, outgoing  # a long frame ends here, not when the next message comes

    async def _send_errand(self, effect: Send, outgoing: Outgoing) -> None:
        try:
            self._post(await self._sent(effect.to, outgoing, effect.limit_s))
        finally:
            self._errands -= 1

    async def _frame(self, outgoing: Outgoing) -> bytes:
        if outgoing.payload >= LONG_BYTES:
            async with self._encoding:  # whoever comes second finds the frame
                return await asyncio.to_thread(lambda: outgoing.frame)
        return outgoing.frame

    async def _sent(self, peer: str, outgoing: Outgoing, limit_s: float) -> Event:
        size, began, code = 0, time.perf_counter(), "unreachable"
        message = outgoing.message
        try:
            frame = await self._frame(outgoing)
            size = len(frame)
            limit = limit_s or SEND_TIMEOUT_S + SECONDS_PER_MIB * size / 2**20
            reply = await self._transport.send(self._addresses[peer], frame, limit, peer)
            self._telemetry.count(peer, "out", outgoing.payload, size)
            code, detail, later = codec.decode_ack(reply)
        except (Unreachable, FrameError, AddressError) as fault:
            return Undelivered(peer, message, "unreachable", str(fault))
        except FednodeError as fault:
            code = "invalid"
            text = f"this node's own message of phase {message.phase} cannot be sent: {fault}"
            if text not in self._unsent:  # once, not for each peer and round
                self._unsent.add(text)
                self._telemetry.events.record(Record("message.unsent", text, "warning"))
            return Undelivered(peer, message, "invalid", str(fault), sent=False)
        finally:
            self._telemetry.message("out", peer, message, size, code)
        if message.phase == Phase.PING:
            self._telemetry.metrics.rtt_seconds.observe(time.perf_counter() - began)
        return acknowledged(peer, message, code, detail, later)
