"""Convert messages and acknowledgements to frames and back; nothing that comes in is trusted.

A frame is a serialized Envelope (proto/fednode/v1/exchange.proto), in this order:

    head        all fields of an Envelope but the following three; the first two bytes are the
                wire version. The field `table` says where each array lies in the block.
    block       the numbers of all arrays (node/fednode/wire/tensors.py)
    head_bytes  the length of the head, so that the block is found without a parser
    checksum    SHA-256 of all bytes before it

The last two have a fixed length. So a frame that was cut or changed on the way is refused before a
parser sees it, a frame of another version before anything but the version is read, and protobuf
never copies the arrays. A frame that somebody built with a correct checksum is limited by Limits in
bytes, names and arrays. decode and decode_ack raise FrameError and nothing else. encode and
encode_ack never build what a receiver would refuse.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from typing import Final, NamedTuple, NoReturn, get_args

from google.protobuf.message import DecodeError

from fednode.core import foreign
from fednode.core.events import AckCode
from fednode.core.types import STANDINGS, Message, Update
from fednode.errors import FednodeError, FrameError, VersionError
from fednode.wire import fields
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

VERSION: Final = 2
ACK_BYTES_MAX: Final = 8192
DETAIL_CHARACTERS_MAX: Final = 1000
MESH_CHARACTERS_MAX: Final = 128
FACT_NAME_CHARACTERS_MAX: Final = 128
DIGEST_BYTES_MAX: Final = 64
PLACE_CHARACTERS_MAX: Final = 300
PROOF_BYTES_MAX: Final = 1024
CLASS_BYTES_MAX: Final = 256
WHOLE_MAX: Final = 2**63 - 1
CHARACTER_BYTES: Final = 4
"""Most bytes of a character in UTF-8."""
WORDS_KEPT: Final = 256
"""So many sets of good words are kept, of as many senders and phases."""
FIELDS: Final = 32
"""More than the fields of an Envelope that are not repeated."""
SPARE_BYTES: Final = 64
"""Room in a head for the tags, lengths and numbers of one entry."""

_NODE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9_.-]{0,62}", re.ASCII)
_BOOT: Final = re.compile(r"([0-9a-f]{8})?", re.ASCII)
_DIGEST: Final = re.compile(r"([0-9a-f]{2}){0,64}", re.ASCII)
_BLOCK_TAG: Final = b"\x72"
# Field 1, a number below 128: the first two bytes of each frame, of every version.
_VERSION_TAG: Final = 0x08
_VERSION: Final = bytes((_VERSION_TAG, VERSION))
# Field 15, four bytes, the lowest first.
_SIZE: Final = struct.Struct("<BI")
_SIZE_TAG: Final = 0x7D
# Field 12, length-delimited, 32 bytes.
_CHECKSUM_TAG: Final = b"\x62\x20"
_CHECKSUM_BYTES: Final = len(_CHECKSUM_TAG) + 32
_CODES: Final[dict[AckCode, str]] = {code: f"ACK_CODE_{code.upper()}" for code in get_args(AckCode)}
_NAMES: Final = {exchange_pb2.AckCode.Value(value): code for code, value in _CODES.items()}
_STATES: Final = {standing: f"MEMBER_STATE_{standing.upper()}" for standing in STANDINGS}
_STANDINGS: Final = {
    exchange_pb2.MemberState.Value(value): standing for standing, value in _STATES.items()
}


class Ack(NamedTuple):
    """The receiver's verdict on one message.

    detail: a sentence; "" if the message was taken. later: as in Answer.
    """

    code: AckCode
    detail: str = ""
    later: int = 0


def encode(message: Message, dtype: Dtype, limits: Limits = LIMITS) -> bytes:
    """Return the frame of a message with its arrays in dtype.

    Raise FednodeError for a message that a receiver would refuse: a number outside the dtype, a
    name with characters that are not allowed, more than the limits.
    """
    fault = _fault(message, limits)
    if fault:
        raise FednodeError(f"this message cannot be sent: {fault}")
    table, block = arrays.pack(message.tensors, dtype, limits)
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
        table=table,
        members=[_news(update) for update in message.members],
        inactive=not message.active,
        boot=message.boot,
        classes=message.tensors.classes,
    )
    head = envelope.SerializeToString(deterministic=True)
    # The numbers go straight into the frame: protobuf would copy them several times.
    body: list[bytes | memoryview] = [head]
    length = sum(map(len, block))
    if length:
        body += [fields.ahead(_BLOCK_TAG, length), *block]
    body.append(_SIZE.pack(_SIZE_TAG, len(head)))
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
    head, block = _opened(frame, limits)
    most = limits.members + limits.facts + limits.classes + FIELDS
    if not fields.at_most(head, most):
        _refuse(f"the head of the frame has more than {most:,} fields, or is not a valid envelope")
    try:
        envelope = exchange_pb2.Envelope.FromString(head)
    except DecodeError as fault:
        raise FrameError("the head of the frame is not a valid envelope") from fault
    if envelope.version != VERSION:
        _refuse(f"the head of the frame says version {VERSION} and version {envelope.version}")
    if len(envelope.members) > limits.members:
        _refuse(f"news of {len(envelope.members)} members; at most {limits.members} fit")
    if len(envelope.classes) > limits.classes:
        _refuse(f"{len(envelope.classes)} classes; at most {limits.classes} fit")
    tensors, dtype = arrays.unpack(envelope.table, block, limits, envelope.classes)
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
        members=tuple(_member(member) for member in envelope.members),
        active=not envelope.inactive,
        boot=envelope.boot,
    )
    wrong = _fault(message, limits)
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
    if code is None:
        raise _unknown("the reply has the code", ack.code)
    if len(ack.detail) > DETAIL_CHARACTERS_MAX or not ack.detail.isprintable():
        raise FrameError("the reply's detail is too long or holds control characters")
    if ack.later > WHOLE_MAX:
        raise FrameError(f"the reply's later round {ack.later} is more than {WHOLE_MAX}")
    return Ack(code, ack.detail, ack.later)


def payload_bytes(message: Message, dtype: Dtype) -> int:
    """Return the tensor bytes alone that encode puts into the frame of this message."""
    return arrays.payload_bytes(message.tensors, dtype)


def _fault(message: Message, limits: Limits) -> str:
    """Return what is wrong with a message's words and numbers; "" for nothing."""
    try:
        _check_words(
            message.mesh, message.sender, message.policy, message.phase, message.fingerprint
        )
    except ValueError as fault:
        return str(fault)
    if message.contributors and not _DIGEST.fullmatch(message.contributors):
        return _no_digest("contributors", message.contributors)
    numbers = (("round", message.round), ("samples", message.samples))
    for what, number in numbers:
        if not 0 <= number <= WHOLE_MAX:
            return f"{what} {number} is not between 0 and {WHOLE_MAX}"
    if len(message.facts) > limits.facts:
        return f"{len(message.facts)} facts; at most {limits.facts} fit"
    for name, value in message.facts.items():
        if not 0 < len(name) <= FACT_NAME_CHARACTERS_MAX or not name.isprintable():
            return f"the name of a fact, {name[:40]!r}, is not 1 to 128 printable characters"
        if len(value) > limits.fact_characters or not value.isprintable():
            return f"fact {name!r} is not at most {limits.fact_characters} printable characters"
    if not _BOOT.fullmatch(message.boot):
        return f"boot id {message.boot[:40]!r} is not eight hexadecimal digits"
    return _classes_fault(message, limits) or _member_fault(message, limits)


@functools.lru_cache(maxsize=WORDS_KEPT)
def _check_words(mesh: str, sender: str, policy: str, phase: str, fingerprint: str) -> None:
    """Raise ValueError, with a sentence, for words that no node says.

    Good words are the same in each message of a peer, so they are looked at once. Only good ones
    are kept, which are short.
    """
    if not 0 < len(mesh) <= MESH_CHARACTERS_MAX or not mesh.isprintable():
        raise ValueError(
            f"mesh {mesh[:40]!r} is not 1 to {MESH_CHARACTERS_MAX} printable characters"
        )
    if not _NODE.fullmatch(sender):
        raise ValueError(f"sender {sender[:64]!r} is not a node name (a-z, 0-9 and -, at most 63)")
    for what, word in (("policy", policy), ("phase", phase)):
        if not _WORD.fullmatch(word):
            raise ValueError(
                f"{what} {word[:64]!r} is not a name (a-z, 0-9, _ . and -, at most 63)"
            )
    if not _DIGEST.fullmatch(fingerprint):
        raise ValueError(_no_digest("fingerprint", fingerprint))


def _no_digest(what: str, text: str) -> str:
    return f"{what} {text[:40]!r} is not hexadecimal of at most {DIGEST_BYTES_MAX} bytes"


def _classes_fault(message: Message, limits: Limits) -> str:
    """Return what is wrong with the class names of a message; "" for nothing."""
    classes = message.tensors.classes
    if classes and not message.tensors:
        return f"{len(classes)} classes without an array"
    if len(classes) > limits.classes:
        return f"{len(classes)} classes; at most {limits.classes} fit"
    last = ""
    for name in classes:
        if not 0 < len(name.encode()) <= CLASS_BYTES_MAX or not foreign.printable(name):
            return f"class {name[:40]!r} is not 1 to {CLASS_BYTES_MAX} bytes of printable text"
        if name <= last:
            return f"class {name[:40]!r} follows {last[:40]!r}; names must be sorted and differ"
        last = name
    return ""


def _member_fault(message: Message, limits: Limits) -> str:
    """Return what is wrong with the news of members in a message; "" for nothing."""
    if len(message.members) > limits.members:
        return f"news of {len(message.members)} members; at most {limits.members} fit"
    for member in message.members:
        if not _NODE.fullmatch(member.name):
            return f"member {member.name[:64]!r} is not a node name (a-z, 0-9 and -, at most 63)"
        if not 0 <= member.incarnation <= WHOLE_MAX:
            return f"incarnation {member.incarnation} is not between 0 and {WHOLE_MAX}"
        for what, word in (("address", member.address), ("id", member.id)):
            if len(word) > PLACE_CHARACTERS_MAX or not (word.isascii() and word.isprintable()):
                return f"{what} {word[:40]!r} is not at most {PLACE_CHARACTERS_MAX} characters"
        if len(member.proof) > PROOF_BYTES_MAX:
            return f"a proof of {len(member.proof)} bytes; at most {PROOF_BYTES_MAX} fit"
    return ""


def _news(update: Update) -> exchange_pb2.Member:
    return exchange_pb2.Member(
        name=update.name,
        state=_STATES[update.state],
        incarnation=update.incarnation,
        address=update.address,
        id=update.id,
        proof=update.proof,
    )


def _member(member: exchange_pb2.Member) -> Update:
    state = _STANDINGS.get(member.state)
    if state is None:
        raise _unknown(f"{member.name[:64]!r} is said to be", member.state)
    return Update(
        member.name, state, member.incarnation, member.address, member.id, bytes(member.proof)
    )


def head_bytes_max(limits: Limits) -> int:
    """Return the bytes of the largest head that these limits allow."""
    words = MESH_CHARACTERS_MAX * CHARACTER_BYTES + 2 * DIGEST_BYTES_MAX + 11 * SPARE_BYTES
    fact = CHARACTER_BYTES * (FACT_NAME_CHARACTERS_MAX + limits.fact_characters) + SPARE_BYTES
    member = 2 * PLACE_CHARACTERS_MAX + PROOF_BYTES_MAX + 2 * SPARE_BYTES
    classes = limits.classes * (CLASS_BYTES_MAX + 4)  # the tag and the length take four bytes
    return words + limits.facts * fact + limits.members * member + limits.table_bytes + classes


HEAD_BYTES_MAX: Final = head_bytes_max(LIMITS)


def _opened(frame: bytes | memoryview, limits: Limits) -> tuple[bytes, memoryview]:
    """Return the head of a frame, and its block as a view of the frame.

    Raise FrameError for a frame that is too long or damaged, or of another wire version.
    """
    if len(frame) > limits.frame_bytes:
        _refuse(f"a frame of {len(frame):,} bytes; at most {limits.frame_bytes:,} fit")
    body = memoryview(frame)[:-_CHECKSUM_BYTES]
    if frame[len(body) :] != _CHECKSUM_TAG + hashlib.sha256(body).digest():
        _refuse("the checksum is missing or wrong: the frame was damaged on its way")
    _check_version(bytes(body[:2]))
    if len(body) < _SIZE.size or body[-_SIZE.size] != _SIZE_TAG:
        _refuse("the frame does not say how long its head is")
    _, size = _SIZE.unpack(body[-_SIZE.size :])
    rest = body[: -_SIZE.size]
    possible = HEAD_BYTES_MAX if limits is LIMITS else head_bytes_max(limits)
    most = min(len(rest), possible)
    if size > most:
        _refuse(f"the frame says that its head has {size:,} bytes; at most {most:,} are possible")
    block = fields.inside(_BLOCK_TAG, rest[size:]) if len(rest) > size else rest[size:]
    if block is None:
        _refuse(f"the {len(rest) - size:,} bytes behind the head are not one block of arrays")
    return bytes(rest[:size]), block


def _check_version(start: bytes) -> None:
    """Raise FrameError unless a frame begins with this node's wire version."""
    if start == _VERSION:
        return
    if len(start) < 2 or start[0] != _VERSION_TAG or start[1] > 0x7F:
        _refuse(f"the frame does not begin with its wire version; this node speaks {VERSION}")
    version = start[1]
    older = "the other node" if version < VERSION else "this node"
    raise VersionError(
        f"the frame has wire version {version} and this node speaks {VERSION}; "
        f"update fednode on {older}"
    )


def _unknown(what: str, value: int) -> FrameError:
    """Return the refusal of a value that a newer fednode of the same wire version may know."""
    if not value:  # no version says that
        return FrameError(f"{what} {value}, which this node does not know")
    return VersionError(
        f"{what} {value}: the sender's wire version {VERSION} may know that, and this node's wire "
        f"version {VERSION} does not; update fednode on this node"
    )


def _refuse(sentence: str) -> NoReturn:
    raise FrameError(sentence)
