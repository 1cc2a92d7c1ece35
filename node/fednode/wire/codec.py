"""Convert messages and acknowledgements to frames and back; nothing that comes in is trusted.

A frame is a serialized Envelope (proto/fednode/v1/exchange.proto) whose last field is the SHA-256
of all bytes before it. So a frame that was cut or changed on the way is refused before a parser
sees it. A frame that somebody built with a correct checksum is limited by Limits in bytes, fields,
names and arrays, before anything of that size is built. decode and decode_ack raise FrameError and
nothing else. encode and encode_ack never build what a receiver would refuse.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple, NoReturn, get_args

from google.protobuf.message import DecodeError

from fednode.core import foreign, varint
from fednode.core.events import AckCode
from fednode.core.types import STANDINGS, Message, Update
from fednode.errors import FednodeError, FrameError
from fednode.wire import tensors as arrays
from fednode.wire.gen import exchange_pb2
from fednode.wire.tensors import DTYPES, LIMITS, Dtype, Limits, roundtrip

__all__ = [
    "DTYPES",
    "LIMITS",
    "VERSION",
    "Ack",
    "Dtype",
    "Limits",
    "decode",
    "decode_ack",
    "encode",
    "encode_ack",
    "payload_bytes",
    "roundtrip",
    "write_ack",
]

VERSION: Final = 1
ACK_BYTES_MAX: Final = 8192
DETAIL_CHARACTERS_MAX: Final = 1000
MESH_CHARACTERS_MAX: Final = 128
FACT_NAME_CHARACTERS_MAX: Final = 128
DIGEST_BYTES_MAX: Final = 64
PLACE_CHARACTERS_MAX: Final = 300
PROOF_BYTES_MAX: Final = 1024
WHOLE_MAX: Final = 2**63 - 1
# Fields of an envelope at its top level beside facts and members, with room for later versions.
FIELDS_SPARE: Final = 64

_NODE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9_.-]{0,62}", re.ASCII)
_DIGEST: Final = re.compile(r"([0-9a-f]{2}){0,64}", re.ASCII)
# Field 11, length-delimited.
_ARRAYS_TAG: Final = b"\x5a"
# Field 12, length-delimited, 32 bytes.
_CHECKSUM_TAG: Final = b"\x62\x20"
_CHECKSUM_BYTES: Final = len(_CHECKSUM_TAG) + 32
_CODES: Final[dict[AckCode, str]] = {code: f"ACK_CODE_{code.upper()}" for code in get_args(AckCode)}
_NAMES: Final = {exchange_pb2.AckCode.Value(value): code for code, value in _CODES.items()}
_STATES: Final = {one: f"MEMBER_STATE_{one.upper()}" for one in STANDINGS}
_STANDINGS: Final = {exchange_pb2.MemberState.Value(value): one for one, value in _STATES.items()}


class Ack(NamedTuple):
    """The receiver's verdict on one message. detail: a sentence; "" if the message was taken."""

    code: AckCode
    detail: str = ""


def encode(message: Message, dtype: Dtype, limits: Limits = LIMITS) -> bytes:
    """Return the frame of a message with its arrays in dtype.

    Raise FednodeError for a message that a receiver would refuse: a number outside the dtype, a
    name with characters that are not allowed, more than the limits.
    """
    fault = _fault(message, limits)
    if fault:
        raise FednodeError(f"this message cannot be sent: {fault}")
    envelope = exchange_pb2.Envelope(
        version=VERSION,
        mesh=message.mesh,
        fingerprint=bytes.fromhex(message.fingerprint),
        policy=message.policy,
        sender=message.sender,
        round=message.round,
        phase=message.phase,
        contributors=bytes.fromhex(message.contributors),
        samples=message.samples,
        facts=dict(message.facts),
    )
    # The arrays go straight into the frame: protobuf would copy them several times. A serialized
    # envelope is the sequence of its fields, in the order of their numbers.
    packed = arrays.pieces(message.tensors, dtype, limits)
    body: list[arrays.Piece] = [envelope.SerializeToString(deterministic=True)]
    if packed:
        body += [_ARRAYS_TAG + varint.written(sum(map(len, packed))), *packed]
    if message.members:
        body.append(_members(message))
    size = sum(map(len, body)) + _CHECKSUM_BYTES
    if size > limits.frame_bytes:
        raise FednodeError(
            f"a frame of {size:,} bytes cannot be sent; at most {limits.frame_bytes:,} fit"
        )
    checksum = hashlib.sha256()
    for piece in body:
        checksum.update(piece)
    return b"".join((*body, _CHECKSUM_TAG, checksum.digest()))


def decode(frame: bytes | memoryview, limits: Limits = LIMITS) -> Message:
    """Return the message in a frame; raise FrameError, and nothing else, for any other bytes.

    The kernel's gate checks later whether numbers are finite and names are the expected names.
    """
    if len(frame) > limits.frame_bytes:
        raise FrameError(f"a frame of {len(frame):,} bytes; at most {limits.frame_bytes:,} fit")
    body = memoryview(frame)[:-_CHECKSUM_BYTES]
    if frame[len(body) :] != _CHECKSUM_TAG + hashlib.sha256(body).digest():
        raise FrameError("the checksum is missing or wrong: the frame was damaged on its way")
    rest, packed = _without_arrays(body, limits)
    try:
        envelope = exchange_pb2.Envelope.FromString(rest)
    except DecodeError as fault:
        raise FrameError("the frame is not a valid envelope") from fault
    if envelope.version != VERSION:
        raise FrameError(
            f"the message has version {envelope.version} and this node speaks {VERSION}; "
            "run the same version of fednode on both nodes"
        )
    tensors, dtype = arrays.unpack(packed, limits)
    message = Message(
        mesh=envelope.mesh,
        fingerprint=envelope.fingerprint.hex(),
        policy=envelope.policy,
        sender=envelope.sender,
        round=envelope.round,
        phase=envelope.phase,
        contributors=envelope.contributors.hex(),
        samples=envelope.samples,
        facts=dict(envelope.facts),
        tensors=tensors,
        dtype=dtype,
        members=tuple(_member(one) for one in envelope.members),
    )
    wrong = _fault(message, limits)
    if wrong:
        raise FrameError(wrong)
    return message


def encode_ack(code: AckCode, detail: str = "") -> bytes:
    """Return the frame of a verdict; a long detail is cut, control characters become spaces."""
    return write_ack(code, foreign.line(detail, DETAIL_CHARACTERS_MAX))


def write_ack(code: AckCode, detail: str) -> bytes:
    """Return the frame of a verdict with any detail, such as a hostile node may send."""
    ack = exchange_pb2.Ack(code=_CODES[code], detail=detail)
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
    if code is None:
        raise FrameError(f"the reply has the code {ack.code}, which this node does not know")
    if len(ack.detail) > DETAIL_CHARACTERS_MAX or not ack.detail.isprintable():
        raise FrameError("the reply's detail is too long or holds control characters")
    return Ack(code, ack.detail)


def payload_bytes(message: Message, dtype: Dtype) -> int:
    """Return the tensor bytes alone that encode puts into the frame of this message."""
    return arrays.payload_bytes(message.tensors, dtype)


def _fault(message: Message, limits: Limits) -> str:
    """Return what is wrong with a message's words and numbers; "" for nothing."""
    if not 0 < len(message.mesh) <= MESH_CHARACTERS_MAX or not message.mesh.isprintable():
        return f"mesh {message.mesh[:40]!r} is not 1 to {MESH_CHARACTERS_MAX} printable characters"
    if not _NODE.fullmatch(message.sender):
        return f"sender {message.sender[:64]!r} is not a node name (a-z, 0-9 and -, at most 63)"
    for what, word in (("policy", message.policy), ("phase", message.phase)):
        if not _WORD.fullmatch(word):
            return f"{what} {word[:64]!r} is not a name (a-z, 0-9, _ . and -, at most 63)"
    for what, digest in (
        ("fingerprint", message.fingerprint),
        ("contributors", message.contributors),
    ):
        if not _DIGEST.fullmatch(digest):
            return f"{what} {digest[:40]!r} is not hexadecimal of at most {DIGEST_BYTES_MAX} bytes"
    for what, number in (("round", message.round), ("samples", message.samples)):
        if not 0 <= number <= WHOLE_MAX:
            return f"{what} {number} is not between 0 and {WHOLE_MAX}"
    if len(message.facts) > limits.facts:
        return f"{len(message.facts)} facts; at most {limits.facts} fit"
    for name, value in message.facts.items():
        if not 0 < len(name) <= FACT_NAME_CHARACTERS_MAX or not name.isprintable():
            return f"the name of a fact, {name[:40]!r}, is not 1 to 128 printable characters"
        if len(value) > limits.fact_characters or not value.isprintable():
            return f"fact {name!r} is not at most {limits.fact_characters} printable characters"
    return _member_fault(message, limits)


def _member_fault(message: Message, limits: Limits) -> str:
    """Return what is wrong with the news of members in a message; "" for nothing."""
    if len(message.members) > limits.members:
        return f"news of {len(message.members)} members; at most {limits.members} fit"
    for one in message.members:
        if not _NODE.fullmatch(one.name):
            return f"member {one.name[:64]!r} is not a node name (a-z, 0-9 and -, at most 63)"
        if not 0 <= one.incarnation <= WHOLE_MAX:
            return f"incarnation {one.incarnation} is not between 0 and {WHOLE_MAX}"
        for what, word in (("address", one.address), ("id", one.id)):
            if len(word) > PLACE_CHARACTERS_MAX or not (word.isascii() and word.isprintable()):
                return f"{what} {word[:40]!r} is not at most {PLACE_CHARACTERS_MAX} characters"
        if len(one.proof) > PROOF_BYTES_MAX:
            return f"a proof of {len(one.proof)} bytes; at most {PROOF_BYTES_MAX} fit"
    return ""


def _members(message: Message) -> bytes:
    """Return the fields of an envelope that hold the news of members."""
    news = [
        exchange_pb2.Member(
            name=one.name,
            state=_STATES[one.state],
            incarnation=one.incarnation,
            address=one.address,
            id=one.id,
            proof=one.proof,
        )
        for one in message.members
    ]
    return exchange_pb2.Envelope(members=news).SerializeToString(deterministic=True)


def _member(found: exchange_pb2.Member) -> Update:
    state = _STANDINGS.get(found.state)
    if state is None:
        _refuse(f"{found.name[:64]!r} is said to be {found.state}, which this node does not know")
    return Update(found.name, state, found.incarnation, found.address, found.id, bytes(found.proof))


def _without_arrays(body: memoryview, limits: Limits) -> tuple[bytes, memoryview]:
    """Return an envelope without its arrays, and the arrays as a view of the body.

    So protobuf does not copy the arrays. Of two fields of arrays the last counts, as in protobuf.
    Raise FrameError for an envelope with more fields than any message has.
    """
    most = limits.facts + limits.members + FIELDS_SPARE
    kept: list[memoryview] = []
    packed = body[:0]
    position = begin = 0  # begin: of the bytes that are not in `kept` yet
    for _ in range(most):
        if position >= len(body):
            break
        start = position
        tag, position = varint.read(body, position)
        kind = tag & 7
        if kind == 0:
            _, position = varint.read(body, position)
        elif kind == 1:
            position += 8
        elif kind == 2:
            length, position = varint.read(body, position)
            position += length
            if tag == _ARRAYS_TAG[0] and position <= len(body):
                kept.append(body[begin:start])
                packed, begin = body[position - length : position], position
        elif kind == 5:
            position += 4
        else:
            _refuse(f"the envelope holds a field of the unknown kind {kind}")
    if position < len(body):
        _refuse(f"the envelope holds more than {most} fields")
    return b"".join((*kept, body[begin:])), packed


def _refuse(sentence: str) -> NoReturn:
    raise FrameError(sentence)
