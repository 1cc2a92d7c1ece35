"""Envelopes and acknowledgements: what goes out comes in, and what is wrong is named."""

from __future__ import annotations

import hashlib
import tracemalloc
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
from tests.unit.wire.samples import message, opened, prompts, sealed


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


def test_the_head_ends_where_the_frame_says_and_the_block_follows() -> None:
    frame = encode(message(tensors=Tensors({"a": [1.0, -2.0]}), members=(MEMBER,)), "float32")
    size = int.from_bytes(frame[-38:-34], "little")
    head = exchange_pb2.Envelope.FromString(frame[:size])
    assert (head.version, head.block, len(head.members)) == (2, b"", 1)
    assert frame[size : size + 2] == bytes((0x72, 8))
    assert frame[size + 2 : -39] == np.array([1.0, -2.0], "<f4").tobytes()


def test_the_numbers_are_copied_once_on_the_way_out() -> None:
    """The frame itself is the copy; the peak is the frame, and what the head takes."""
    said = message(tensors=prompts(512, 4096))
    encode(message(), "float32")
    tracemalloc.start()
    frame = encode(said, "float32")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert said.tensors.nbytes == 8 << 20
    assert len(frame) <= peak < len(frame) + (64 << 10)


def test_the_numbers_are_copied_once_on_the_way_in() -> None:
    frame = encode(message(tensors=prompts(512, 4096)), "float32")
    decode(frame)
    tracemalloc.start()
    got = decode(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert got.tensors.nbytes <= peak < got.tensors.nbytes + (64 << 10)


@pytest.mark.parametrize("shift", range(4))
def test_received_arrays_are_aligned_wherever_the_frame_lies(shift: int) -> None:
    frame = encode(message(), "float32")
    got = decode(memoryview(bytes(shift) + frame)[shift:])
    assert got.tensors["context"].flags.aligned
    assert got == message()


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
    envelope = opened(encode(sent, dtype))
    held = codec.payload_bytes(sent, dtype)
    assert held == {"float32": 4 * 23, "float16": 2 * 23, "int8": 23 + 4 * 3}[dtype]
    scales = 4 * 3 if dtype == "int8" else 0
    assert len(envelope.block) == held - scales
    assert scales < len(envelope.table) < scales + 3 * 16


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
        (
            "version",
            3,
            "frame has wire version 3 and this node speaks 2; update fednode on this node",
        ),
        (
            "version",
            1,
            "frame has wire version 1 and this node speaks 2; update fednode on the other node",
        ),
        ("version", 0, "does not begin with its wire version; this node speaks 2"),
        ("version", 300, "does not begin with its wire version; this node speaks 2"),
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
        ("table", b"\x00", "table of arrays is 0, not a dtype and a list of arrays"),
        ("table", b"", "table of arrays is not what msgpack packs: .*incomplete"),
        ("block", b"", "ends at byte 8,192, but the block has 0 bytes"),
        ("block", bytes(8193), "arrays end at byte 8,192, but the block has 8,193 bytes"),
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


def test_a_boot_id_and_a_later_round_come_back_as_they_were() -> None:
    assert decode(encode(message(boot="0123abcd"), "float32")).boot == "0123abcd"
    assert decode_ack(encode_ack("ok", "", 7)) == Ack("ok", "", 7)


@pytest.mark.parametrize("boot", ["0123abc", "0123abcde", "0123ABCD", "\x1b[2Jabcd"])
def test_a_boot_id_that_no_node_draws_is_refused(boot: str) -> None:
    with pytest.raises(FednodeError, match="eight hexadecimal digits"):
        encode(message(boot=boot), "float32")
    frame = encode(message(boot="0123abcd"), "float32")
    envelope = opened(frame)
    envelope.boot = boot
    with pytest.raises(FrameError, match="eight hexadecimal digits"):
        decode(sealed(envelope))


def test_a_later_round_that_no_node_reaches_is_refused() -> None:
    with pytest.raises(FrameError, match="later round"):
        decode_ack(codec.write_ack("ok", "", 2**63))


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
