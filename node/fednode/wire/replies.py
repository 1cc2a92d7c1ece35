"""Make the replies of other programs safe to show: texts are cleaned, numbers are limited."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from fednode.core import foreign

MOST: Final = 1e15
"""Largest figure that is shown; no time, loss or age is beyond it."""
Reply = TypeVar("Reply", bound=Message)


def clean(reply: Reply) -> Reply:
    """Return the same reply, with safe texts and limited numbers in all of its fields."""
    for field, value in reply.ListFields():
        if isinstance(value, Message):
            clean(value)
        elif isinstance(value, str | float):
            setattr(reply, field.name, _safe(value) if value == value else 0.0)  # no time is nan
        elif hasattr(value, "items"):
            pairs = {_safe(key): _safe(entry) for key, entry in value.items()}
            value.clear()
            value.update(pairs)
        elif not isinstance(value, bytes | int) and isinstance(value[0], Message):
            for part in value:
                clean(part)
        elif not isinstance(value, bytes | int):
            value[:] = [_safe(item) for item in value]
    return reply


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return foreign.line(value)
    bounded = not isinstance(value, float) or math.isnan(value) or abs(value) <= MOST
    return value if bounded else math.copysign(MOST, value)
