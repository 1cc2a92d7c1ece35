"""The transport's contract: bytes out, bytes back. It knows nothing of messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Address = str
"""host:port, as in peers.yaml."""

OnFrame = Callable[[bytes], Awaitable[bytes]]
"""Take a frame, return the reply frame; never raises."""


class Transport(Protocol):
    """Carry frames between addresses. tests/contract/transports.py holds for every one of them."""

    async def listen(self, address: Address, on_frame: OnFrame) -> Address:
        """Serve frames at an address (port 0: any free port); return the address bound.

        Raise AddressError where it is taken or not allowed.
        """
        ...

    async def send(self, to: Address, frame: bytes, timeout_s: float) -> bytes:
        """Deliver one frame and return the reply; raise Unreachable within timeout_s otherwise.

        Raise AddressError for an address that is malformed or not allowed, and FrameError for a
        frame over the cap: faults of the caller, which no later try can mend. A handler whose
        sender gave up is cancelled.
        """
        ...

    async def close(self) -> None:
        """Stop serving and drop connections; calls under way end in Unreachable. Idempotent."""
        ...
