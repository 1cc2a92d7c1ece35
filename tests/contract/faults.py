"""What can go wrong on a transport at each point of an exchange, put in front of a real one.

before   sending begins       fail, slow, cancel
sending  the frame has left   the answer is lost, late, or the sender goes
merging  the receiver works   it fails, is slow, or its sender goes
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final, Literal

from fednode.errors import Unreachable
from fednode.transports.base import Address, OnFrame, Transport

What = Literal["fail", "slow", "cancel"]
When = Literal["before", "sending", "merging"]
WHATS: Final[tuple[What, ...]] = ("fail", "slow", "cancel")
WHENS: Final[tuple[When, ...]] = ("before", "sending", "merging")
SLOW_S: Final = 0.15


async def pause(seconds: float) -> None:
    """Let time pass without a sleep that a test could rely on."""
    try:
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
    except TimeoutError:
        return


@dataclass
class Faulty:
    """A transport that misbehaves in one way, for a share of its frames drawn from a seed."""

    inner: Transport
    what: What
    when: When
    share: float = 0.3
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    times: int = 0
    on: bool = True

    def _strikes(self, when: When) -> bool:
        struck = self.on and self.when == when and self.chance.random() < self.share
        self.times += struck
        return struck

    async def listen(self, address: Address, on_frame: OnFrame) -> Address:
        async def between(frame: bytes, caller: str) -> bytes:
            if not self._strikes("merging"):
                return await on_frame(frame, caller)
            if self.what == "fail":
                raise RuntimeError("the receiver fails while it merges")
            if self.what == "slow":
                await pause(SLOW_S)
                return await on_frame(frame, caller)
            work = asyncio.ensure_future(on_frame(frame, caller))
            await asyncio.sleep(0)
            work.cancel()
            raise RuntimeError("cancelled while it merged")

        return await self.inner.listen(address, between)

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        if self._strikes("before"):
            if self.what == "slow":
                await pause(SLOW_S)
            else:
                raise Unreachable(f"cannot send to {to}: a fault before sending")
        call = asyncio.ensure_future(self.inner.send(to, frame, timeout_s, who))
        if not self._strikes("sending"):
            return await call
        if self.what == "cancel":
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            raise Unreachable(f"cannot send to {to}: cancelled while sending")
        reply = await call
        if self.what == "slow":
            await pause(SLOW_S)
            return reply
        raise Unreachable(f"cannot send to {to}: the answer was lost")

    def expect(self, frame_bytes: int) -> None:
        self.inner.expect(frame_bytes)

    def disconnect(self, id: str, seconds: float) -> None:
        self.inner.disconnect(id, seconds)

    async def close(self) -> None:
        await self.inner.close()
