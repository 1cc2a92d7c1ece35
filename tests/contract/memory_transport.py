"""A network inside one process, which tests and examples use in place of gRPC.

Transports that share a Hub reach each other. Only the deadline of a send waits for a clock.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

from fednode.errors import AddressError, FrameError, Unreachable
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address, OnFrame
from fednode.transports.framing import FRAME_BYTES_MAX, REPLY_BYTES_MAX

FIRST_PORT: Final = 49152


class Hub:
    """The connections between memory transports. A test may hold back the replies of an address."""

    def __init__(self) -> None:
        self.listeners: dict[Address, MemoryTransport] = {}
        self.gates: dict[Address, asyncio.Event] = {}
        self._ports = itertools.count(FIRST_PORT)

    def hold(self, address: Address) -> None:
        """Hold back the replies of an address, after its handler took the frame."""
        self.gates[address] = asyncio.Event()

    def release(self, address: Address) -> None:
        """Let the replies of an address go, held replies included."""
        self.gates.pop(address).set()

    def join(self, address: Address, transport: MemoryTransport) -> Address:
        """Give an address to a transport, and return it; port 0 becomes a free port."""
        endpoint = parse(address)
        if endpoint.port == 0:
            address = str(Endpoint(endpoint.host, next(self._ports)))
        if address in self.listeners:
            raise AddressError(
                f"the address {address} is in use; stop who listens there or choose another port"
            )
        self.listeners[address] = transport
        return address


class MemoryTransport:
    """Carry frames between the transports of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
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
        other = self._hub.listeners.get(to)
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
            self._hub.listeners.pop(self._address)
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
        reply = await other._on_frame(frame, "")
        gate = self._hub.gates.get(to)
        if gate is not None:
            await gate.wait()
        return reply
