"""Frames and acknowledgements: what goes out comes in, and what is wrong is named."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
import safetensors.numpy

from fednode.core.events import AckCode
from fednode.core.merge.numbers import roundtrip
from fednode.core.types import DTYPES, Dtype, MemberUpdate, Tensors
from fednode.errors import FednodeError, FrameError, VersionError
from fednode.transports.framing import FRAME_BYTES_MAX
from fednode.wire import codec
from fednode.wire.codec import Ack, Broadcasts, Outgoing, decode, decode_ack, encode, encode_ack
from fednode.wire.gen import exchange_pb2
from fednode.wire.tensors import payload_bytes
from tests.unit.wire.samples import START, built, changed, message, metadata, prompts, split


def test_a_message_without_arrays_and_facts_is_small() -> None:
    marker = message(tensors=Tensors(), phase="done")
    frame = encode(marker, "float16")
    assert decode(frame) == marker
    assert len(frame) < 120
    assert payload_bytes(marker.tensors, "float16") == 0


def test_one_message_has_one_encoding() -> None:
    facts = {f"key-{number}": str(number) for number in range(20)}
    backwards = dict(reversed(facts.items()))
    assert encode(message(facts=facts), "int8") == encode(message(facts=backwards), "int8")


def test_the_frame_is_what_the_header_of_the_module_says() -> None:
    said = message(tensors=Tensors({"a": [1.0, -2.0]}), members=(MEMBER,), facts={"k": "v"})
    frame = encode(said, "float32")
    head, arrays = split(frame)
    assert START.unpack_from(frame) == (8, 3, len(head), len(arrays))
    assert len(frame) == START.size + len(head) + len(arrays)
    envelope = exchange_pb2.Envelope.FromString(head)
    assert (envelope.sender, envelope.round) == ("node-1", 3)
    news = ["node-2", "suspect", 7, "10.0.0.7:7700", "ID", b"\x00lease"]
    assert envelope.metadata == metadata(["k", "v"], news, [])
    assert safetensors.numpy.load(arrays)["a"].tolist() == [1.0, -2.0]


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_do_not_keep_the_frame(dtype: Dtype) -> None:
    frame = bytearray(encode(message(), dtype))
    got = decode(memoryview(frame))
    frame[:] = bytes(len(frame))
    assert got.tensors == roundtrip(message().tensors, dtype)
    assert not got.tensors["context"].flags.writeable


MEMBER = MemberUpdate("node-2", "suspect", 7, "10.0.0.7:7700", "ID", b"\x00lease")
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
    ({"base": "ab" * 65}, "at most 64 bytes"),
    ({"round": -1}, "round -1"),
    ({"samples": 2**63}, f"samples {2**63}"),
    ({"facts": {str(number): "" for number in range(65)}}, "65 facts; at most 64"),
    ({"facts": {"": "x"}}, "name of a fact, ''"),
    ({"facts": {"k": "v" * 1025}}, "fact 'k': 'v+' is not 0 to 1024"),
    ({"facts": {"k": "a\nb"}}, "fact 'k'"),
    ({"members": (MEMBER,) * 1027}, "1027 members; at most 1026 fit"),
    ({"members": (replace(MEMBER, name="Two!"),)}, "'Two!' is not a node name"),
    ({"members": (replace(MEMBER, incarnation=-1),)}, "incarnation -1"),
    ({"members": (replace(MEMBER, address="x" * 301),)}, "address 'x"),
    ({"members": (replace(MEMBER, id="Ä"),)}, "id 'Ä'"),
    ({"members": (replace(MEMBER, proof=b"x" * 1025),)}, "a proof of 1025 bytes"),
    *(
        ({"boot": boot}, "eight hexadecimal digits")
        for boot in ("0123abc", "0123abcde", "0123ABCD", "\x1b[2Jabcd")
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), FAULTS, ids=lambda value: str(value)[:40])
def test_what_a_receiver_would_refuse_is_not_sent(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FednodeError, match=f"cannot be sent: .*{sentence}"):
        encode(message(**changes), "float32")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("mesh", "", "mesh ''"),
        ("fingerprint", bytes(65), "fingerprint"),
        ("round", 2**64 - 1, "round"),
        ("metadata", metadata(["k", "\x00"]), "fact 'k'"),
        ("metadata", metadata(["k"] * 130), "65 facts; at most 64 fit"),
        ("metadata", metadata(["k"]), "a list of facts has entries of another form"),
        ("metadata", metadata(["k", 1]), "a list of facts has entries of another form"),
        ("metadata", metadata(["k", ["v"]]), "exceeds max_array_len"),
        ("metadata", metadata(["k", {"v": 1}]), "exceeds max_map_len"),
        ("metadata", metadata(["k", msgpack.ExtType(5, b"x")]), "exceeds max_ext_len"),
        ("metadata", metadata({}), "not what msgpack packs"),
        ("metadata", metadata() + b"\x00", "bytes follow the three lists"),
        ("metadata", metadata()[:2], "not what msgpack packs"),
        ("metadata", b"\xdd\xff\xff\xff\xff", "2147483647 facts; at most 64 fit"),
        ("metadata", b"\x92\xa1\xff\xa0\x90\x90", "not what msgpack packs"),
        ("metadata", metadata((), ["n", "alive", True, "", "", b""]), "entries of another form"),
        ("metadata", metadata((), ["n", "alive", -1, "", "", b""]), "incarnation -1"),
        ("metadata", metadata((), ["N", "alive", 1, "", "", b""]), "'N' is not a node name"),
        ("metadata", metadata((), ["n", "alive", 1, "", "", ""]), "entries of another form"),
        ("metadata", metadata((), ["n"] * 6 * 1027), "1027 members; at most 1026 fit"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_head_with_a_wrong_field_is_refused(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence) as refused:
        decode(changed(encode(message(), "float32"), **{field: value}))
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "head", [b"\x08", b"\x08" + b"\xff" * 10, b"\x0b", b"\x12\x05a", b"\x12\x01\xff", b"\x09\x00"]
)
def test_a_head_that_is_no_envelope_is_refused(head: bytes) -> None:
    with pytest.raises(FrameError, match="not a valid envelope"):
        decode(built(head))


def test_fields_of_later_additions_are_passed_over() -> None:
    head, arrays = split(encode(message(), "float32"))
    later = b"\xa8\x06\x07\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x01x"
    assert decode(built(head + later, arrays)) == message()


@pytest.mark.parametrize(
    ("version", "older"), [(1, "the other node"), (2, "the other node"), (4, "this node")]
)
def test_a_frame_of_another_version_is_refused_before_its_size_is_looked_at(
    version: int, older: str
) -> None:
    start = bytes((8, version))
    for frame in (built(b"", version=version), start, start + bytes(FRAME_BYTES_MAX)):
        with pytest.raises(VersionError) as refused:
            decode(frame)
        assert str(refused.value) == (
            f"the frame has wire version {version} and this node speaks 3; update fednode on "
            f"{older}"
        )


@pytest.mark.parametrize("frame", [b"", b"\x08", b"\x08\x00" + bytes(8), b"\x02\x03" + bytes(8)])
def test_a_frame_without_a_version_is_refused(frame: bytes) -> None:
    with pytest.raises(FrameError, match="does not begin with its version; this node speaks 3"):
        decode(frame)


def test_a_head_over_the_limit_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange_pb2, "Envelope", None)
    most = codec.HEAD_BYTES_MAX
    with pytest.raises(FrameError, match=f"a head of {most + 1:,} bytes; at most {most:,} fit"):
        decode(built(bytes(most + 1)))


PAIRS = codec.HEAD_BYTES_MAX // 2 - 20
LISTS = b"\xdd" + PAIRS.to_bytes(4) + b"\x91\x07" * PAIRS
CROWDS = {
    "facts": LISTS,
    "a fact": b"\x92" + LISTS,
    "members": b"\x90" + LISTS,
    "a member": b"\x90\x96" + LISTS,
    "a class": b"\x90\x90\x91" + LISTS,
}


@pytest.mark.parametrize("packed", CROWDS.values(), ids=CROWDS)
def test_metadata_of_many_small_parts_cost_what_their_bytes_do(packed: bytes) -> None:
    """A list of one number takes two bytes of a frame, and some seventy of memory."""
    head = exchange_pb2.Envelope(metadata=packed).SerializeToString()
    frame = built(head)
    tracemalloc.start()
    with pytest.raises(FrameError):
        decode(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * codec.HEAD_BYTES_MAX


def test_the_largest_head_that_the_limits_allow_fits() -> None:
    wide = "\U0001d54f"
    member = MemberUpdate("n" * 63, "revoked", codec.WHOLE_MAX, "a" * 300, "i" * 300, bytes(1024))
    largest = message(
        mesh=wide * 128,
        fingerprint="ab" * 64,
        base="ab" * 64,
        policy="p" * 63,
        sender="s" * 63,
        phase="p" * 63,
        round=codec.WHOLE_MAX,
        samples=codec.WHOLE_MAX,
        facts={wide * 126 + f"{number:02}": wide * 1024 for number in range(64)},
        members=(member,) * 1026,
        tensors=Tensors(
            {f"{number:0128}": np.zeros((1,) * 8) for number in range(256)},
            [f"{number:04}" + wide * 63 for number in range(4096)],
        ),
    )
    frame = encode(largest, "int8")
    assert decode(frame) == largest
    head, _ = split(frame)
    assert len(head) <= codec.HEAD_BYTES_MAX


def test_a_frame_over_the_cap_is_refused_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = encode(message(), "float32")
    monkeypatch.setattr(codec, "FRAME_BYTES_MAX", len(frame))
    assert decode(frame) == message()
    monkeypatch.setattr(codec, "FRAME_BYTES_MAX", len(frame) - 1)
    with pytest.raises(FrameError, match=f"{len(frame):,} bytes; at most {len(frame) - 1:,}"):
        decode(frame)
    with pytest.raises(FednodeError, match=f"{len(frame):,} bytes cannot be sent"):
        encode(message(), "float32")


@pytest.mark.parametrize("code", get_args(AckCode))
def test_a_verdict_comes_back(code: AckCode) -> None:
    verdict = Ack(code, "policy.epsilon is 1 here and 2 at 'b'", 7)
    assert decode_ack(encode_ack(*verdict)) == verdict


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
        (codec.write_ack("ok", "", 2**63), "later round"),
    ],
)
def test_a_reply_that_is_no_verdict_is_refused(frame: bytes, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        decode_ack(frame)


def test_a_state_that_this_version_does_not_know_is_refused() -> None:
    news = metadata((), ["node-2", "asleep", 1, "", "", b""])
    with pytest.raises(VersionError, match="'node-2' is said to be 'asleep': the sender's"):
        decode(changed(encode(message(), "float32"), metadata=news))


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (("b", "a"), "must be sorted and differ"),
        (("a", "a"), "must be sorted and differ"),
        (("",), "not 1 to 256 bytes"),
        (("x" * 257,), "not 1 to 256 bytes"),
        (("\x1b[2J",), "printable"),
        (tuple(f"{number:05}" for number in range(4097)), "4097 classes; at most 4096 fit"),
    ],
)
def test_class_names_are_few_short_safe_and_in_order(classes: tuple[str, ...], words: str) -> None:
    rows = {"rows": np.zeros((2, 3))}
    with pytest.raises(FednodeError, match=words):
        encode(message(tensors=Tensors(rows, classes)), "float32")
    frame = encode(message(tensors=Tensors(rows)), "float32")
    with pytest.raises(FrameError, match=words):
        decode(changed(frame, metadata=metadata((), (), classes)))


def test_classes_without_an_array_are_refused_and_others_arrive() -> None:
    frame = encode(message(tensors=Tensors()), "float32")
    with pytest.raises(FrameError, match="1 classes without an array"):
        decode(changed(frame, metadata=metadata((), (), ["ant"])))
    named = message(tensors=Tensors({"rows": np.zeros((2, 3))}, ("gray wolf", "été")))
    assert decode(encode(named, "float32")).tensors.classes == ("gray wolf", "été")


# Messages to several peers


def test_a_frame_is_made_when_it_is_asked_for_and_kept() -> None:
    said = message()
    outgoing = Outgoing(said, "float16")
    assert outgoing.payload == payload_bytes(said.tensors, "float16")
    assert outgoing.frame == encode(said, "float16")
    assert outgoing.frame is outgoing.frame


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_message_is_read_as_its_receivers_read_it(dtype: Dtype) -> None:
    said = message()
    decoded = Outgoing(said, dtype).decoded
    assert decoded == replace(said, tensors=roundtrip(said.tensors, dtype))
    assert decoded.dtype == dtype


def test_sends_of_one_message_share_a_frame() -> None:
    broadcasts, said = Broadcasts(), message()
    first = broadcasts.outgoing(said, "float32")
    assert broadcasts.outgoing(said, "float32") is first
    assert broadcasts.outgoing(said, "float16") is not first
    assert broadcasts.outgoing(message(), "float32") is not first  # equal, and another message


def test_the_format_that_a_message_names_goes_before_that_of_the_node() -> None:
    broadcasts = Broadcasts()
    assert broadcasts.outgoing(message(dtype="int8"), "float32").dtype == "int8"
    assert broadcasts.outgoing(message(tensors=Tensors()), "float16").dtype == "float16"
