"""Make replies safe to show, with clean texts and limited numbers, and turn them into JSON."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
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
        elif hasattr(value, "items"):
            first = islice(value.items(), ITEMS_MAX)
            pairs = {_safe(key): _safe(entry) for key, entry in first}
            value.clear()
            value.update(pairs)
        elif not isinstance(value, bytes | int) and isinstance(value[0], Message):
            del value[ITEMS_MAX:]
            for part in value:
                clean(part)
        elif not isinstance(value, bytes | int):
            del value[ITEMS_MAX:]
            value[:] = [_safe(item) for item in value]
    return reply


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return foreign.line(value)
    bounded = not isinstance(value, float) or math.isnan(value) or abs(value) <= MOST
    return value if bounded else math.copysign(MOST, value)


def plain(message: Any) -> dict[str, Any]:
    """Return a protobuf message as JSON types, with all fields."""
    tree = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _numbered(tree, message.DESCRIPTOR)


def _numbered(tree: dict[str, Any], kind: Descriptor) -> dict[str, Any]:
    """Return a tree whose counts are numbers; protobuf writes 64-bit numbers as text."""
    return {name: _number(value, kind.fields_by_name[name]) for name, value in tree.items()}


def _number(value: Any, field: FieldDescriptor) -> Any:
    inside = field.message_type
    if inside is not None and inside.GetOptions().map_entry:
        held = inside.fields_by_name["value"]
        return {key: _number(entry, held) for key, entry in value.items()}
    if isinstance(value, list):
        return [_number(entry, field) for entry in value]
    if inside is not None:
        return _numbered(value, inside)
    counts = field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
    return int(value) if counts else value
