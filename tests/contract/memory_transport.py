"""A network inside one process, which tests and examples use in place of gRPC.

Transports that share a Hub reach each other. Faults are set on the hub and are exact: an address is
cut off until it is mended, and its replies are held until they are released. Nothing here waits for
a clock except the deadline of a send.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from fednode.errors import AddressError, FrameError, Unreachable
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address, OnFrame
from fednode.transports.framing import FRAME_BYTES_MAX, REPLY_BYTES_MAX

FIRST_PORT: Final = 49152


class Hub:
    """The connections between memory transports, with faults that a test turns on and off.

    sent: number of frames that reached each address. answered: number of replies that left it.
    """

    def __init__(self) -> None:
        self.sent: Counter[Address] = Counter()
        self.answered: Counter[Address] = Counter()
        self._listeners: dict[Address, MemoryTransport] = {}
        self._cut: set[Address] = set()
        self._gates: dict[Address, asyncio.Event] = {}

    def cut(self, address: Address) -> None:
        """Make an address unreachable; its listener does not notice."""
        self._cut.add(address)

    def mend(self, address: Address) -> None:
        """Undo `cut`; without effect if the address is not cut off."""
        self._cut.discard(address)

    def hold(self, address: Address) -> None:
        """Hold back the replies of an address, after its handler took the frame."""
        self._gates.setdefault(address, asyncio.Event())

    def release(self, address: Address) -> None:
        """Let the replies of an address go, held replies included."""
        gate = self._gates.pop(address, None)
        if gate is not None:
            gate.set()

    def listener(self, address: Address) -> MemoryTransport | None:
        """Return the transport that can be reached at an address now; None if there is none."""
        return None if address in self._cut else self._listeners.get(address)

    def gate(self, address: Address) -> asyncio.Event | None:
        """Return the event that the replies of an address wait for; None if they are not held."""
        return self._gates.get(address)

    def join(self, address: Address, transport: MemoryTransport) -> Address:
        """Give an address to a transport, and return it; port 0 becomes a free port."""
        endpoint = parse(address)
        if endpoint.port == 0:
            ports = (Endpoint(endpoint.host, port) for port in range(FIRST_PORT, 65536))
            address = next((str(free) for free in ports if str(free) not in self._listeners), "")
        if not address:
            raise AddressError("this hub has no port left; close a transport")
        if address in self._listeners:
            raise AddressError(
                f"the address {address} is in use; stop who listens there or choose another port"
            )
        self._listeners[address] = transport
        return address

    def leave(self, address: Address) -> None:
        """Free an address."""
        self._listeners.pop(address, None)


class MemoryTransport:
    """Carry frames between the transports of one hub. id: the caller that receivers are told."""

    def __init__(self, hub: Hub, id: str = "") -> None:
        self._hub = hub
        self._id = id
        self._address: Address | None = None
        self._on_frame: OnFrame | None = None
        self._closed = asyncio.Event()

    async def listen(self, address: Address, on_frame: OnFrame) -> Address:
        """Serve frames at an address of the hub (port 0: any free port); return the address."""
        if self._closed.is_set():
            raise AddressError(f"cannot listen on {address}: this transport is closed")
        if self._address is not None:
            raise AddressError(f"this transport listens on {self._address} already")
        self._address = self._hub.join(address, self)
        self._on_frame = on_frame
        return self._address

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver one frame and return the reply."""
        parse(to)
        if len(frame) > FRAME_BYTES_MAX:
            raise FrameError(
                f"a frame of {len(frame):,} bytes cannot be sent; the limit is {FRAME_BYTES_MAX:,}"
            )
        other = self._hub.listener(to)
        if self._closed.is_set() or other is None:
            raise Unreachable(f"nobody answers at {to}")
        return await self._call(other, to, frame, timeout_s)

    def expect(self, frame_bytes: int) -> None:
        """Do nothing: frames are not cut here."""

    def disconnect(self, id: str, seconds: float) -> None:
        """Do nothing: no end has a key."""

    async def close(self) -> None:
        """Leave the hub; sends under way from here and to here raise Unreachable."""
        self._closed.set()
        if self._address is not None:
            self._hub.leave(self._address)
            self._address = None

    async def _call(
        self, other: MemoryTransport, to: Address, frame: bytes, timeout_s: float
    ) -> bytes:
        """Wait for the reply, the end of either transport, or the deadline."""
        answer = asyncio.ensure_future(self._answer(other, to, frame))
        ends = [asyncio.ensure_future(each._closed.wait()) for each in (self, other)]
        waiting = [answer, *ends]
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if not done:
            raise Unreachable(f"{to} did not answer within {timeout_s:.3g} s")
        if answer not in done or answer.cancelled():
            raise Unreachable(f"the connection to {to} was closed before the answer")
        fault = answer.exception()
        if fault is not None or len(answer.result()) > REPLY_BYTES_MAX:
            raise Unreachable(f"{to} failed to answer") from fault
        return answer.result()

    async def _answer(self, other: MemoryTransport, to: Address, frame: bytes) -> bytes:
        """Run the other transport's handler; its reply waits while replies are held."""
        assert other._on_frame is not None
        self._hub.sent[to] += 1
        reply = await other._on_frame(frame, self._id)
        gate = self._hub.gate(to)
        if gate is not None:
            await gate.wait()
        self._hub.answered[to] += 1
        return reply
