"""Make replies safe to show, with clean texts and limited numbers, and turn them into JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from fednode.core import foreign
from fednode.errors import Unreachable

MOST: Final = 1e15
"""Largest figure that is shown; no time, loss or age is beyond it."""
ITEMS_MAX: Final = 4096
"""Most items of a list or a table that are kept of a reply, so that no reply costs seconds."""
Reply = TypeVar("Reply", bound=Message)


def clean(reply: Reply | None) -> Reply:
    """Return the same reply, with safe texts and limited numbers in all of its fields.

    Raise Unreachable for None, which gRPC makes of an answer that it cannot read.
    """
    if reply is None:
        raise Unreachable("The node's answer cannot be read: perhaps its version is another one.")
    for field, value in reply.ListFields():
        if isinstance(value, Message):
            clean(value)
        elif isinstance(value, str | float):
            setattr(reply, field.name, _safe(value) if value == value else 0.0)  # no time is nan
        elif isinstance(value, MutableMapping):
            first = islice(value.items(), ITEMS_MAX)
            pairs = {_safe(key): _safe(entry) for key, entry in first}
            value.clear()
            value.update(pairs)
        elif not isinstance(value, bytes | int):
            del value[ITEMS_MAX:]
            if isinstance(value[0], Message):
                for part in value:
                    clean(part)
            else:
                value[:] = [_safe(item) for item in value]
    return reply


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return foreign.line(value)
    bounded = not isinstance(value, float) or math.isnan(value) or abs(value) <= MOST
    return value if bounded else math.copysign(MOST, value)


def plain(message: Message) -> dict[str, Any]:
    """Return a protobuf message as JSON types, with all fields but messages that are not set."""
    return {
        field.name: _json(getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _json(value: Any) -> Any:
    if isinstance(value, Message):
        return plain(value)
    if isinstance(value, Mapping):
        return {key: _json(entry) for key, entry in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json(entry) for entry in value]
    # JSON has no numbers that are not finite.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
