"""The frames that a node and a relay say to each other (proto/fednode/v1/relay.proto)."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from fednode.core import foreign
from fednode.errors import FrameError
from fednode.transports.session import Reader
from fednode.wire.gen import relay_pb2 as pb

FRAME_MAX: Final = 1024
"""The most bytes of a message."""
HEAD: Final = 2
TICKET_BYTES: Final = 16
ID_MAX: Final = 80
"""The most characters of an id; node/fednode/identity/keys.py writes 58."""
WHY_MAX: Final = 300
"""The most characters of a sentence from the other end that are shown."""
CODES: Final = frozenset({"ok", "absent", "refused", "full", "draining", "silent"})

Kind = TypeVar("Kind", pb.FromNode, pb.FromRelay)


def pack(message: Message) -> bytes:
    """Return a message as a frame; raise FrameError if it is too long."""
    data = message.SerializeToString()
    if len(data) > FRAME_MAX:
        raise FrameError(f"a frame of a relay has {len(data):,} bytes; at most {FRAME_MAX:,}")
    return len(data).to_bytes(HEAD, "big") + data


def from_node(data: bytes) -> pb.FromNode:
    """Return a node's message, which is safe to use; raise FrameError if it is none."""
    return _checked(_parsed(pb.FromNode, data))


def from_relay(data: bytes) -> pb.FromRelay:
    """Return a relay's message, which is safe to use and to show; raise FrameError if not one."""
    return _checked(_parsed(pb.FromRelay, data))


async def read(reader: Reader) -> bytes:
    """Return the message of the next frame, b"" at the end; raise FrameError for a long one."""
    head = await _exactly(reader, HEAD)
    size = int.from_bytes(head, "big")
    if head and not 0 < size <= FRAME_MAX:
        raise FrameError(f"a frame of a relay says it has {size:,} bytes; 1 to {FRAME_MAX:,}")
    return await _exactly(reader, size) if head else b""


async def _exactly(reader: Reader, size: int) -> bytes:
    """Return so many bytes; b"" if the connection ends before that."""
    content = b""
    while len(content) < size:
        more = await reader.read(size - len(content))
        if not more:
            return b""
        content += more
    return content


def _parsed(kind: type[Kind], data: bytes) -> Kind:
    if len(data) > FRAME_MAX:
        raise FrameError(f"a frame of a relay has {len(data):,} bytes; at most {FRAME_MAX:,}")
    try:
        return kind.FromString(data)
    except DecodeError as fault:
        raise FrameError("a frame of a relay cannot be read") from fault


def _checked(message: Kind) -> Kind:
    """Raise FrameError for a message that says nothing or too much; make its sentences safe."""
    what = message.WhichOneof("what")
    if what is None:
        raise FrameError("a frame of a relay says nothing that is known here")
    said = getattr(message, what)
    if what in {"take", "decline", "call"} and len(said.ticket) != TICKET_BYTES:
        raise FrameError(f"a ticket has {len(said.ticket)} bytes; it must have {TICKET_BYTES}")
    for field in ("to", "caller", "source"):
        text = getattr(said, field, "")
        if len(text) > ID_MAX or foreign.line(text) != text:
            raise FrameError(f"a frame of a relay has a {field} that is no id or address")
    if what == "reply" and said.code not in CODES:
        raise FrameError(f"a relay answers {foreign.line(said.code, 40)!r}, which is no answer")
    if what in {"reply", "decline"}:
        said.why = foreign.line(said.why, WHY_MAX)
    return message
