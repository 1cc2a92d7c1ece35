"""Convert messages and acknowledgements to frames and back; nothing that comes in is trusted.

    8 | version | length of the head (u32) | length of the arrays (u32) | head | arrays

The first byte is 8 in every version. The head is an Envelope (proto/fednode/v1/exchange.proto); its
metadata are three msgpack lists: names and values of facts, the fields of news, class names. The
arrays are a safetensors file (node/fednode/wire/tensors.py).

A frame of another version is refused before anything but the version is read, and a frame that was
cut before a parser sees it. The two lengths bound what the parsers may take, and other limits the
number of entries. decode and decode_ack raise FrameError and nothing else. encode and encode_ack
never build what a receiver would refuse.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple, get_args

import msgpack
from google.protobuf.message import DecodeError

from fednode.core import foreign
from fednode.core.events import AckCode
from fednode.core.types import STANDINGS, Dtype, MemberUpdate, Message
from fednode.errors import FednodeError, FrameError, VersionError
from fednode.transports.framing import FRAME_BYTES_MAX
from fednode.wire.gen import exchange_pb2
from fednode.wire.tensors import pack, payload_bytes, unpack

VERSION: Final = 3
HEAD_BYTES_MAX: Final = 4 << 20
FACTS_MAX: Final = 64
FACT_CHARACTERS_MAX: Final = 1024
NEWS_MAX: Final = 1026
CLASSES_MAX: Final = 4096
ACK_BYTES_MAX: Final = 8192
DETAIL_CHARACTERS_MAX: Final = 1000
PROOF_BYTES_MAX: Final = 1024
WHOLE_MAX: Final = 2**63 - 1
_MARK: Final = 8
_START: Final = struct.Struct("<BBII")
_CODES: Final[dict[AckCode, str]] = {code: f"ACK_CODE_{code.upper()}" for code in get_args(AckCode)}
_NAMES: Final = {exchange_pb2.AckCode.Value(value): code for code, value in _CODES.items()}
_NEWS: Final = attrgetter("name", "state", "incarnation", "address", "id", "proof")


class Ack(NamedTuple):
    """The receiver's verdict on one message.

    detail: a sentence; "" if the message was taken. later: as in Answer.
    """

    code: AckCode
    detail: str = ""
    later: int = 0


def encode(message: Message, dtype: Dtype) -> bytes:
    """Return the frame of a message with its arrays in dtype.

    Raise FednodeError for a message that a receiver would refuse: a number outside the dtype, a
    name with characters that are not allowed, more than the limits.
    """
    fault = _fault(message)
    if fault:
        raise FednodeError(f"this message cannot be sent: {fault}")
    arrays = pack(message.tensors, dtype)
    envelope = exchange_pb2.Envelope(
        mesh=message.mesh,
        fingerprint=bytes.fromhex(message.fingerprint),
        policy=message.policy,
        sender=message.sender,
        round=message.round,
        phase=message.phase,
        base=bytes.fromhex(message.base),
        samples=message.samples,
        inactive=not message.active,
        boot=message.boot,
        metadata=_pack_metadata(message),
    )
    head = envelope.SerializeToString(deterministic=True)
    length = sum(map(len, arrays))
    size = _START.size + len(head) + length
    if size > FRAME_BYTES_MAX:
        raise FednodeError(
            f"a frame of {size:,} bytes cannot be sent; at most {FRAME_BYTES_MAX:,} fit"
        )
    return b"".join((_START.pack(_MARK, VERSION, len(head), length), head, *arrays))


def decode(frame: bytes | memoryview) -> Message:
    """Return the message in a frame; raise FrameError, and nothing else, for any other bytes.

    The kernel's gate checks later whether numbers are finite and names are the expected names.
    """
    head, arrays = _split(memoryview(frame))
    try:
        envelope = exchange_pb2.Envelope.FromString(head)
    except DecodeError as fault:
        raise FrameError("the head of the frame is not a valid envelope") from fault
    facts, members, classes = _read_metadata(envelope.metadata)
    tensors, dtype = unpack(arrays, classes)
    message = Message(
        mesh=envelope.mesh,
        fingerprint=envelope.fingerprint.hex(),
        policy=envelope.policy,
        sender=envelope.sender,
        round=envelope.round,
        phase=envelope.phase,
        base=envelope.base.hex(),
        samples=envelope.samples,
        facts=facts,
        tensors=tensors,
        dtype=dtype,
        members=members,
        active=not envelope.inactive,
        boot=envelope.boot,
    )
    wrong = _fault(message)
    if wrong:
        raise FrameError(wrong)
    return message


def encode_ack(code: AckCode, detail: str = "", later: int = 0) -> bytes:
    """Return the frame of a verdict; a long detail is cut, control characters become spaces."""
    return write_ack(code, foreign.line(detail, DETAIL_CHARACTERS_MAX), later)


def write_ack(code: AckCode, detail: str, later: int = 0) -> bytes:
    """Return the frame of a verdict with any detail, such as a hostile node may send."""
    ack = exchange_pb2.Ack(code=_CODES[code], detail=detail, later=later)
    return ack.SerializeToString(deterministic=True)


def decode_ack(frame: bytes) -> Ack:
    """Return the verdict in a reply frame; raise FrameError, and nothing else, for other bytes."""
    if len(frame) > ACK_BYTES_MAX:
        raise FrameError(f"a reply of {len(frame):,} bytes; at most {ACK_BYTES_MAX:,} fit")
    try:
        ack = exchange_pb2.Ack.FromString(frame)
    except DecodeError as fault:
        raise FrameError("the reply is not a valid acknowledgement") from fault
    code = _NAMES.get(ack.code)
    if code is None and ack.code:
        raise _unknown("the reply has the code", ack.code)
    if code is None:  # no version says that
        raise FrameError("the reply has the code 0")
    if len(ack.detail) > DETAIL_CHARACTERS_MAX or not ack.detail.isprintable():
        raise FrameError("the reply's detail is too long or holds control characters")
    if ack.later > WHOLE_MAX:
        raise FrameError(f"the reply's later round {ack.later} is more than {WHOLE_MAX}")
    return Ack(code, ack.detail, ack.later)


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
        return encode(self.message, self.dtype)

    @cached_property
    def decoded(self) -> Message:
        """The message as its receivers read it."""
        return decode(self.frame)

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


def _split(frame: memoryview) -> tuple[bytes, memoryview]:
    """Return the head of a frame, and its arrays as a view of the frame."""
    version = frame[1] if len(frame) > 1 and frame[0] == _MARK else 0
    if not version:
        raise FrameError(f"the frame does not begin with its version; this node speaks {VERSION}")
    if version != VERSION:
        older = "the other node" if version < VERSION else "this node"
        raise VersionError(
            f"the frame has wire version {version} and this node speaks {VERSION}; "
            f"update fednode on {older}"
        )
    if len(frame) > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {len(frame):,} bytes; at most {FRAME_BYTES_MAX:,} fit")
    start = frame[: _START.size].tobytes().ljust(_START.size, b"\0")
    *_, size, length = _START.unpack(start)
    if len(frame) != _START.size + size + length:
        raise FrameError("the frame has another length than it says: it was damaged on its way")
    if size > HEAD_BYTES_MAX:
        raise FrameError(f"a head of {size:,} bytes; at most {HEAD_BYTES_MAX:,} fit")
    end = _START.size + size
    return frame[_START.size : end].tobytes(), frame[end:]


# Metadata -----------------------------------------------------------------------------------------


def _pack_metadata(message: Message) -> bytes:
    facts = [text for fact in sorted(message.facts.items()) for text in fact]
    news = [value for member in message.members for value in _NEWS(member)]
    lists = (facts, news, message.tensors.classes)
    return b"".join(map(msgpack.packb, lists)) if any(lists) else b""


def _read_metadata(packed: bytes) -> tuple[dict[str, str], tuple[MemberUpdate, ...], list[str]]:
    """Return the facts, the news and the class names of a message."""
    if not packed:
        return {}, (), []
    # The lists hold no lists and no maps, so the bytes bound the memory.
    reader = msgpack.Unpacker(
        max_buffer_size=len(packed), max_array_len=0, max_map_len=0, max_ext_len=0
    )
    reader.feed(packed)
    try:
        facts = _rows(reader, "facts", FACTS_MAX, str, str)
        news = _rows(reader, "members", NEWS_MAX, str, str, int, str, str, bytes)
        classes = _rows(reader, "classes", CLASSES_MAX, str)
        if reader.tell() != len(packed):
            raise ValueError("bytes follow the three lists")
    except (ValueError, msgpack.UnpackException) as fault:
        why = foreign.line(str(fault), 200)
        raise FrameError(f"the metadata are not what msgpack packs: {why}") from fault
    return dict(facts), tuple(MemberUpdate(*row) for row in news), [name for (name,) in classes]


def _rows(reader: msgpack.Unpacker, what: str, most: int, *kinds: type) -> list[tuple[Any, ...]]:
    """Return the values of a list in rows of these types."""
    count, rest = divmod(reader.read_array_header(), len(kinds))
    if count > most:
        raise FrameError(f"{count} {what}; at most {most} fit")
    rows = [tuple(reader.unpack() for _ in kinds) for _ in range(count)]
    if rest or any(tuple(map(type, row)) != kinds for row in rows):
        raise ValueError(f"a list of {what} has entries of another form")
    return rows


# Texts and numbers --------------------------------------------------------------------------------


class _Rule(NamedTuple):
    """Which texts are allowed, and how a sentence says it."""

    allows: Callable[[str], object]
    words: str


def _printable(least: int, most: int) -> _Rule:
    words = f"{least} to {most} printable characters"
    return _Rule(lambda text: least <= len(text) <= most and text.isprintable(), words)


def _pattern(pattern: str, words: str) -> _Rule:
    return _Rule(re.compile(pattern, re.ASCII).fullmatch, words)


_NODE: Final = _pattern(r"[a-z0-9][a-z0-9-]{0,62}", "a node name (a-z, 0-9 and -, at most 63)")
_WORD: Final = _pattern(r"[a-z][a-z0-9_.-]{0,62}", "a name (a-z, 0-9, _ . and -, at most 63)")
_DIGEST: Final = _pattern(r"([0-9a-f]{2}){0,64}", "hexadecimal of at most 64 bytes")
_BOOT: Final = _pattern(r"([0-9a-f]{8})?", "eight hexadecimal digits")
_PLACE: Final = _pattern(r"[ -~]{0,300}", "at most 300 characters of ASCII")
_LABEL: Final = _printable(1, 128)
_VALUE: Final = _printable(0, FACT_CHARACTERS_MAX)
_CLASS: Final = _Rule(
    lambda name: foreign.printable(name) and 0 < len(name.encode()) <= 256,
    "1 to 256 bytes of printable text",
)


def _fault(message: Message) -> str:
    """Return what is wrong with a message's words and numbers; "" for nothing."""
    facts, members, classes = message.facts, message.members, message.tensors.classes
    counts = (
        ("facts", facts, FACTS_MAX),
        ("members", members, NEWS_MAX),
        ("classes", classes, CLASSES_MAX),
    )
    for what, entries, most in counts:
        if len(entries) > most:
            return f"{len(entries)} {what}; at most {most} fit"
    for what, text, rule in _texts(message):
        if not rule.allows(text):
            return f"{what} {text[:64]!r} is not {rule.words}"
    numbers = [("round", message.round), ("samples", message.samples)]
    for what, number in (*numbers, *(("incarnation", one.incarnation) for one in members)):
        if not 0 <= number <= WHOLE_MAX:
            return f"{what} {number} is not between 0 and {WHOLE_MAX}"
    for member in members:
        if member.state not in STANDINGS:
            raise _unknown(f"{member.name!r} is said to be", repr(member.state[:40]))
        if len(member.proof) > PROOF_BYTES_MAX:
            return f"a proof of {len(member.proof)} bytes; at most {PROOF_BYTES_MAX} fit"
    if classes and not message.tensors:
        return f"{len(classes)} classes without an array"
    if any(name <= last for last, name in pairwise(classes)):
        return "class names must be sorted and differ"
    return ""


def _texts(message: Message) -> Iterator[tuple[str, str, _Rule]]:
    """Yield each text of a message: what it is, the text, which texts are allowed."""
    yield "mesh", message.mesh, _LABEL
    yield "sender", message.sender, _NODE
    yield "policy", message.policy, _WORD
    yield "phase", message.phase, _WORD
    yield "fingerprint", message.fingerprint, _DIGEST
    yield "base", message.base, _DIGEST
    yield "boot id", message.boot, _BOOT
    for name, text in message.facts.items():
        yield "the name of a fact,", name, _LABEL
        yield f"fact {name!r}:", text, _VALUE
    for member in message.members:
        yield "member", member.name, _NODE
        yield "address", member.address, _PLACE
        yield "id", member.id, _PLACE
    for name in message.tensors.classes:
        yield "class", name, _CLASS


def _unknown(what: str, value: object) -> VersionError:
    """Return the refusal of a value that a newer fednode of the same wire version may know."""
    return VersionError(
        f"{what} {value}: the sender's wire version {VERSION} may know that, and this node's wire "
        f"version {VERSION} does not; update fednode on this node"
    )
