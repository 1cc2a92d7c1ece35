"""Messages on their way out: each is encoded once, however many peers it goes to."""

from __future__ import annotations

from functools import cached_property

from fednode.core.types import Dtype, Message
from fednode.wire import codec
from fednode.wire.tensors import payload_bytes


class Outgoing:
    """One message with its frame, which is made when it is asked for first.

    dtype: the number format of its arrays.
    """

    def __init__(self, message: Message, dtype: Dtype) -> None:
        self.message = message
        self.dtype = dtype

    @cached_property
    def frame(self) -> bytes:
        """The bytes to send; raise FednodeError for a message that a receiver would refuse."""
        return codec.encode(self.message, self.dtype)

    @cached_property
    def decoded(self) -> Message:
        """The message as its receivers read it."""
        return codec.decode(self.frame)

    @cached_property
    def payload(self) -> int:
        """The bytes of the arrays alone."""
        return payload_bytes(self.message.tensors, self.dtype)


class Broadcasts:
    """Find out which sends carry the same message, so that they share one frame.

    Messages are compared by identity. Only the last one is remembered here: the sends of a
    broadcast follow each other, and a frame lives as long as one of them needs it.
    """

    def __init__(self) -> None:
        self._last: Outgoing | None = None

    def outgoing(self, message: Message, dtype: Dtype) -> Outgoing:
        """Return the message with its frame. dtype: used if the message names none."""
        wanted, last = message.dtype or dtype, self._last
        if last is None or last.message is not message or last.dtype != wanted:
            last = self._last = Outgoing(message, wanted)
        return last
