"""Envelopes and acknowledgements: what goes out comes in, and what is wrong is named."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from fednode.core.events import AckCode
from fednode.core.types import NO_FACTS, STANDINGS, Tensors, Update
from fednode.errors import FednodeError, FrameError
from fednode.wire import codec
from fednode.wire.codec import Ack, Limits, decode, decode_ack, encode, encode_ack
from fednode.wire.gen import exchange_pb2
from fednode.wire.tensors import pack
from tests.unit.wire.samples import message, opened, prompts, seal, sealed


@pytest.mark.parametrize("dtype", codec.DTYPES)
def test_a_message_comes_back_with_the_numbers_that_roundtrip_promises(dtype: codec.Dtype) -> None:
    sent = message(facts={"policy.epsilon": "1e-06"}, contributors="ab" * 32)
    got = decode(encode(sent, dtype))
    assert got.tensors == codec.roundtrip(sent.tensors, dtype)
    for name in ("mesh", "fingerprint", "policy", "sender", "round", "phase", "contributors"):
        assert getattr(got, name) == getattr(sent, name)
    assert (got.samples, dict(got.facts)) == (120, {"policy.epsilon": "1e-06"})


def test_a_message_without_arrays_and_facts_is_small() -> None:
    marker = message(tensors=Tensors(), phase="done")
    frame = encode(marker, "float16")
    assert decode(frame) == marker
    assert len(frame) < 120
    assert codec.payload_bytes(marker, "float16") == 0


def test_one_message_has_one_encoding() -> None:
    facts = {f"key-{number}": str(number) for number in range(20)}
    backwards = dict(reversed(facts.items()))
    assert encode(message(facts=facts), "int8") == encode(message(facts=backwards), "int8")


def test_the_frame_is_an_envelope_of_the_contract() -> None:
    frame = encode(message(), "float32")
    envelope = exchange_pb2.Envelope.FromString(frame)
    assert envelope.version == codec.VERSION
    assert envelope.sender == "node-1"
    assert envelope.checksum == hashlib.sha256(frame[:-34]).digest()


@pytest.mark.parametrize("dtype", codec.DTYPES)
def test_the_frame_is_what_protobuf_writes(dtype: codec.Dtype) -> None:
    tensors = Tensors({"a": np.ones((3, 5)), "b": np.ones(70_000), "c": np.zeros(0), "d": 1.0})
    for said in (tensors, Tensors({"a": np.ones(100)}), Tensors()):
        frame = encode(message(tensors=said, members=(MEMBER,) * 2, facts={"k": "v"}), dtype)
        assert sealed(opened(frame)) == frame


def test_of_two_fields_of_arrays_the_last_counts() -> None:
    first, last = (exchange_pb2.Envelope(tensors=pack(prompts(n), "float32")) for n in (1, 2))
    rest = encode(message(tensors=Tensors(), members=(MEMBER,)), "float32")[:-34]
    body = first.SerializeToString() + rest + last.SerializeToString()
    assert decode(seal(body)) == message(tensors=prompts(2), members=(MEMBER,))


@pytest.mark.parametrize("dtype", codec.DTYPES)
def test_arrays_do_not_keep_the_frame(dtype: codec.Dtype) -> None:
    frame = bytearray(encode(message(), dtype))
    got = decode(memoryview(frame))
    frame[:] = bytes(len(frame))
    assert got.tensors == codec.roundtrip(message().tensors, dtype)
    assert not got.tensors["context"].flags.writeable


@pytest.mark.parametrize("dtype", codec.DTYPES)
def test_payload_is_what_the_frame_holds_beyond_names_and_shapes(dtype: codec.Dtype) -> None:
    sent = message(tensors=Tensors({"a": np.ones((3, 5)), "b": np.ones(7), "c": np.float32(1)}))
    packed = opened(encode(sent, dtype)).tensors
    held = codec.payload_bytes(sent, dtype)
    assert held == {"float32": 4 * 23, "float16": 2 * 23, "int8": 23 + 4 * 3}[dtype]
    assert held < len(packed) < held + 3 * 32


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"mesh": ""}, "mesh '' is not"),
    ({"mesh": "a\x1b[31m"}, "printable"),
    ({"mesh": "m" * 129}, "mesh 'mmm"),
    ({"sender": "Node_1"}, "sender 'Node_1' is not a node name"),
    ({"sender": "n" * 64}, "at most 63"),
    ({"sender": "-n"}, "not a node name"),
    ({"policy": "Zero DFL"}, "policy 'Zero DFL' is not a name"),
    ({"phase": ""}, "phase '' is not a name"),
    ({"phase": "prompts\n"}, r"phase 'prompts\\n'"),
    ({"fingerprint": "xyz"}, "fingerprint 'xyz' is not hexadecimal"),
    ({"fingerprint": "AB"}, "fingerprint 'AB'"),
    ({"contributors": "ab" * 65}, "at most 64 bytes"),
    ({"round": -1}, "round -1"),
    ({"samples": 2**63}, f"samples {2**63}"),
    ({"facts": {str(number): "" for number in range(65)}}, "65 facts; at most 64"),
    ({"facts": {"": "x"}}, "name of a fact, ''"),
    ({"facts": {"k": "v" * 1025}}, "fact 'k' is not at most 1024"),
    ({"facts": {"k": "a\nb"}}, "fact 'k'"),
]


@pytest.mark.parametrize(("changes", "sentence"), FAULTS, ids=lambda value: str(value)[:40])
def test_what_a_receiver_would_refuse_is_not_sent(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FednodeError, match=f"cannot be sent: .*{sentence}"):
        encode(message(**changes), "float32")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("version", 2, "version 2 and this node speaks 1"),
        ("version", 0, "version 0"),
        ("mesh", "", "mesh ''"),
        ("sender", "../etc", "sender '../etc'"),
        ("policy", "", "policy ''"),
        ("phase", "x" * 64, "phase"),
        ("fingerprint", bytes(65), "fingerprint"),
        ("contributors", bytes(65), "contributors"),
        ("round", 2**64 - 1, "round"),
        ("samples", 2**63, "samples"),
        ("facts", {"k": "\x00"}, "fact 'k'"),
        ("facts", {str(number): "" for number in range(65)}, "65 facts"),
        ("tensors", b"\x00", "arrays are cut short or not msgpack"),
    ],
)
def test_an_envelope_with_a_wrong_field_is_refused(field: str, value: Any, sentence: str) -> None:
    envelope = opened(encode(message(), "float32"))
    if isinstance(value, dict):
        envelope.facts.update(value)
    else:
        setattr(envelope, field, value)
    with pytest.raises(FrameError, match=sentence):
        decode(sealed(envelope))


def test_every_change_of_one_bit_is_noticed() -> None:
    frame = encode(message(tensors=prompts(1, 4), facts={"k": "v"}), "float16")
    for position in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(FrameError, match="damaged"):
            decode(bytes(changed))


def test_every_truncation_and_extension_is_noticed() -> None:
    frame = encode(message(tensors=prompts(1, 4)), "float16")
    for length in range(len(frame)):
        with pytest.raises(FrameError, match="damaged"):
            decode(frame[:length])
    with pytest.raises(FrameError, match="damaged"):
        decode(frame + b"\x00")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "version 0"),
        (b"\x08\x01" * 1155, "more than 1154 fields"),
        (b"\x52\x00" * 1155, "more than 1154 fields"),
        (b"\x08", "cut short"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x0b", "unknown kind 3"),
        (b"\x12\x05a", "not a valid envelope"),
        (b"\x12\x01\xff", "not a valid envelope"),
        (b"\x0d\x00", "not a valid envelope"),
        (b"\x09\x00", "not a valid envelope"),
    ],
)
def test_a_sealed_body_that_is_no_envelope_is_refused(body: bytes, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        decode(seal(body))


def test_fields_of_later_additions_are_passed_over() -> None:
    body = encode(message(), "float32")[:-34]
    later = b"\xa8\x06\x07\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x01x"
    assert decode(seal(body + later)) == message()


def test_a_frame_over_the_cap_is_refused_at_both_ends() -> None:
    frame = encode(message(), "float32")
    small = Limits(frame_bytes=len(frame) - 1)
    with pytest.raises(FrameError, match=f"{len(frame):,} bytes; at most {len(frame) - 1:,}"):
        decode(frame, small)
    with pytest.raises(FednodeError, match=f"{len(frame):,} bytes cannot be sent"):
        encode(message(), "float32", small)
    assert decode(frame, Limits(frame_bytes=len(frame))) == message()


def test_a_decoded_message_has_no_facts_that_it_did_not_bring() -> None:
    assert decode(encode(message(), "float32")).facts == dict(NO_FACTS)


@pytest.mark.parametrize("code", get_args(AckCode))
def test_a_verdict_comes_back(code: AckCode) -> None:
    assert decode_ack(encode_ack(code, "policy.epsilon is 1 here and 2 at 'b'")) == Ack(
        code, "policy.epsilon is 1 here and 2 at 'b'"
    )


def test_every_verdict_of_the_contract_has_a_code_and_the_reverse() -> None:
    names = {name.removeprefix("ACK_CODE_").lower() for name in exchange_pb2.AckCode.keys()}  # noqa: SIM118
    assert names == {"unspecified", *get_args(AckCode)}


def test_a_detail_is_made_fit_to_print() -> None:
    assert decode_ack(encode_ack("busy", "a\nb\x1b[0m\ud800" + "é" * 2000)) == Ack(
        "busy", "a b [0m " + "é" * 991 + "\N{HORIZONTAL ELLIPSIS}"
    )


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (b"", "the code 0"),
        (exchange_pb2.Ack(detail="x").SerializeToString(), "the code 0"),
        (b"\x08\x63", "the code 99"),
        (b"\x12\x02\xff\xff", "not a valid acknowledgement"),
        (b"\xff", "not a valid acknowledgement"),
        (bytes(8193), "8,193 bytes; at most 8,192"),
        (exchange_pb2.Ack(code="ACK_CODE_OK", detail="a\nb").SerializeToString(), "control"),
        (exchange_pb2.Ack(code="ACK_CODE_OK", detail="a" * 1001).SerializeToString(), "too long"),
    ],
)
def test_a_reply_that_is_no_verdict_is_refused(frame: bytes, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        decode_ack(frame)


MEMBER = Update("node-2", "suspect", 7, "10.0.0.7:7700", "ID", b"\x00lease")


def test_news_of_members_comes_back_as_it_was() -> None:
    news = tuple(replace(MEMBER, state=state) for state in STANDINGS)
    assert decode(encode(message(members=news), "float32")).members == news


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (replace(MEMBER, name="Two!"), "'Two!' is not a node name"),
        (replace(MEMBER, incarnation=-1), "incarnation -1"),
        (replace(MEMBER, address="x" * 301), "address 'x"),
        (replace(MEMBER, id="Ä"), "id 'Ä'"),
        (replace(MEMBER, proof=b"x" * 1025), "a proof of 1025 bytes"),
    ],
)
def test_news_that_no_member_tells_is_refused(wrong: Update, sentence: str) -> None:
    with pytest.raises(FednodeError, match=sentence):
        encode(message(members=(wrong,)), "float32")


def test_more_members_than_any_mesh_has_are_refused() -> None:
    with pytest.raises(FednodeError, match="news of 1027 members; at most 1026 fit"):
        encode(message(members=(MEMBER,) * 1027), "float32")
    assert len(decode(encode(message(members=(MEMBER,) * 1026), "float32")).members) == 1026


def test_a_state_that_this_version_does_not_know_is_refused() -> None:
    envelope = opened(encode(message(members=(MEMBER,)), "float32"))
    envelope.members[0].state = 9  # type: ignore[assignment]
    with pytest.raises(FrameError, match="'node-2' is said to be 9"):
        decode(sealed(envelope))
