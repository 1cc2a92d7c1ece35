"""The contract of a transport: bytes out, bytes back. A transport knows nothing of messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Address = str
"""host:port, as in peers.yaml."""

OnFrame = Callable[[bytes, str], Awaitable[bytes]]
"""A handler: it takes a frame and its caller, returns the reply frame, and never raises.

The caller is the fingerprint of the key that the other end proved to hold; "" without keys.
"""


class Transport(Protocol):
    """Carry frames between addresses. tests/contract/transport_suite.py checks every transport."""

    async def listen(self, address: Address, on_frame: OnFrame) -> Address:
        """Serve frames at an address (port 0: any free port); return the address bound.

        Raise AddressError if the address is taken or not allowed.
        """
        ...

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver a frame and return the reply; raise Unreachable without a reply in timeout_s.

        who: the name that the other end's key must belong to, if nodes have keys. Raise
        AddressError for an address that is malformed or not allowed, and FrameError for a frame
        over the size limit. Both are faults of the caller, so trying again does not help. If a
        sender gives up, its handler is cancelled.
        """
        ...

    def expect(self, frame_bytes: int) -> None:
        """Learn how large the frames of this mesh are; of much larger ones none need be kept."""
        ...

    def disconnect(self, id: str, seconds: float) -> None:
        """Close all connections with a key, and refuse new ones for some seconds.

        A transport without keys does nothing.
        """
        ...

    async def close(self) -> None:
        """Stop serving and drop connections; calls under way raise Unreachable. Idempotent."""
        ...
