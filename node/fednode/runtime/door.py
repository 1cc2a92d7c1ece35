"""The place where frames arrive while a node loads, and after."""

from __future__ import annotations

from fednode.transports.base import OnFrame
from fednode.wire import codec


class Door:
    """The place where frames arrive. While a node loads, it is closed and answers "busy"."""

    def __init__(self) -> None:
        self._inside: OnFrame | None = None

    def open(self, on_frame: OnFrame) -> None:
        self._inside = on_frame

    async def on_frame(self, frame: bytes, caller: str) -> bytes:
        if self._inside is None:
            return codec.encode_ack("busy", "this node is loading its model and images")
        return await self._inside(frame, caller)
