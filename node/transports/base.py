"""The transport's contract: bytes out, bytes back. It knows nothing of messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Address = str
"""host:port, as in peers.yaml."""

OnFrame = Callable[[bytes, str], Awaitable[bytes]]
"""Take a frame and its caller, return the reply frame; never raises.

The caller is the fingerprint of the key that it proved to hold, "" where nobody proves anything.
"""


class Transport(Protocol):
    """Carry frames between addresses. tests/contract/transports.py holds for every one of them."""

    async def listen(self, address: Address, on_frame: OnFrame) -> Address:
        """Serve frames at an address (port 0: any free port); return the address bound.

        Raise AddressError where it is taken or not allowed.
        """
        ...

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver one frame and return the reply; raise Unreachable within timeout_s otherwise.

        who: the name that the other end's key must belong to, where ends prove who they are.
        Raise AddressError for an address that is malformed or not allowed, and FrameError for a
        frame over the cap: faults of the caller, which no later try can mend. A handler whose
        sender gave up is cancelled.
        """
        ...

    async def close(self) -> None:
        """Stop serving and drop connections; calls under way end in Unreachable. Idempotent."""
        ...
