"""Heads and blocks of frames that somebody built: the version first, then lengths, then words."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.core.types import Tensors, Update
from fednode.errors import FednodeError, FrameError
from fednode.wire import codec
from fednode.wire.codec import decode, encode
from fednode.wire.gen import exchange_pb2
from tests.unit.wire.samples import built, message, opened, seal, sealed

MEMBER = Update("node-2", "suspect", 7, "10.0.0.7:7700", "ID", b"\x00lease")
VERSION_1 = bytes.fromhex(
    "0801120464656d6f1a04abababab22077a65726f64666c2a066e6f64652d3130033a0770726f6d70747348785206"
    "0a016b1201765a1e81a16183a164a7666c6f61743332a1739102a162c4080000803f000000c06a0c0a066e6f6465"
    "2d32100118016220b5f5306440c40bfaa350d55b24241d111248b00f1675b870462b857389cee76b"
)
"""What commit 74a1e89 sent: two numbers, a fact and news of a member."""


def test_a_frame_of_version_1_is_refused_in_one_sentence() -> None:
    with pytest.raises(FrameError) as refused:
        decode(VERSION_1)
    assert str(refused.value) == (
        "the frame has wire version 1 and this node speaks 2; update fednode on the other node"
    )


def test_an_older_node_finds_the_version_where_it_looks_for_it() -> None:
    """A node of version 1 parses the whole frame as an envelope before it reads the version."""
    envelope = exchange_pb2.Envelope.FromString(encode(message(members=(MEMBER,)), "float16"))
    assert envelope.version == codec.VERSION == 2


@pytest.mark.parametrize("body", [b"", b"\x08", b"\x02\x02", b"\x08\x82\x00"])
def test_a_sealed_body_without_a_version_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError, match="does not begin with its wire version"):
        decode(seal(body))


@pytest.mark.parametrize("body", [b"\x08\x02", b"\x08\x02\x7d\x00\x00", b"\x08\x02" + bytes(40)])
def test_a_frame_that_does_not_say_how_long_its_head_is_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError, match="does not say how long its head is"):
        decode(seal(body))


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (b"\x08", "not a valid envelope"),
        (b"\x08" + b"\xff" * 10, "not a valid envelope"),
        (b"\x0b", "not a valid envelope"),
        (b"\x12\x05a", "not a valid envelope"),
        (b"\x12\x01\xff", "not a valid envelope"),
        (b"\x0d\x00", "not a valid envelope"),
        (b"\x09\x00", "not a valid envelope"),
        (b"\x08\x01", "says version 2 and version 1"),
        (b"\x6a\x00" * 1027, "news of 1027 members; at most 1026 fit"),
        (b"\x52\x00", "mesh ''"),
        (b"", "mesh ''"),
    ],
)
def test_a_head_that_is_no_envelope_is_refused(head: bytes, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        decode(built(b"\x08\x02" + head))


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        (b"\x00", "the 1 bytes behind the head are not one block"),
        (b"\x72", "the 1 bytes behind the head are not one block"),
        (b"\x72\x05abc", "the 5 bytes behind the head are not one block"),
        (b"\x72\x02abc", "the 5 bytes behind the head are not one block"),
        (b"\x72\x83\x00abc", "the 6 bytes behind the head are not one block"),
        (b"\x5a\x03abc", "the 5 bytes behind the head are not one block"),
        (b"\x72\x00", "mesh ''"),
    ],
)
def test_bytes_behind_the_head_that_are_no_block_are_refused(block: bytes, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        decode(built(b"\x08\x02", block))


@pytest.mark.parametrize("size", [0, 1, 3, 2**32 - 1])
def test_a_head_with_a_wrong_length_is_refused(size: int) -> None:
    body = encode(message(), "float32")[:-38]
    with pytest.raises(FrameError, match="head"):
        decode(seal(body + size.to_bytes(4, "little")))


def test_a_head_over_the_limit_is_refused_before_it_is_read() -> None:
    most = codec.head_bytes_max(codec.LIMITS)
    head = b"\x08\x02" + b"\x6a\x00" * most
    sentence = f"says that its head has {len(head):,} bytes; at most {most:,} are possible"
    with pytest.raises(FrameError, match=sentence):
        decode(built(head))


@pytest.mark.parametrize("entry", [b"\x6a\x00", b"\x52\x00", b"\x78\x01", b"\xfa\x7f\x00"])
def test_a_head_of_many_small_fields_is_refused_before_it_is_parsed(
    entry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """protobuf would make an object of some hundred bytes of each empty member."""
    monkeypatch.setattr(exchange_pb2, "Envelope", None)
    head = b"\x08\x02" + entry * 200_000
    with pytest.raises(FrameError, match=r"more than 5,218 fields"):
        decode(built(head))


def test_the_largest_head_that_the_limits_allow_fits() -> None:
    limits, wide = codec.LIMITS, "\U0001d54f"
    member = Update("n" * 63, "revoked", codec.WHOLE_MAX, "a" * 300, "i" * 300, bytes(1024))
    largest = message(
        mesh=wide * 128,
        fingerprint="ab" * 64,
        contributors="ab" * 64,
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
    most = codec.head_bytes_max(limits)
    assert 0.9 * most < int.from_bytes(frame[-38:-34], "little") <= most


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
    named = Tensors({"rows": np.zeros((2, 3))}, classes)
    with pytest.raises(FednodeError, match=words):
        encode(message(tensors=named), "float32")
    envelope = opened(encode(message(tensors=Tensors({"rows": np.zeros((2, 3))})), "float32"))
    envelope.classes.extend(classes)
    with pytest.raises(FrameError, match=words):
        decode(sealed(envelope))


def test_classes_without_an_array_are_refused_and_others_arrive() -> None:
    envelope = opened(encode(message(tensors=Tensors()), "float32"))
    envelope.classes.append("ant")
    with pytest.raises(FrameError, match="1 classes without an array"):
        decode(sealed(envelope))
    named = message(tensors=Tensors({"rows": np.zeros((2, 3))}, ("gray wolf", "été")))
    assert decode(encode(named, "float32")).tensors.classes == ("gray wolf", "été")


def test_fields_of_later_additions_are_passed_over() -> None:
    frame = encode(message(), "float32")
    size = int.from_bytes(frame[-38:-34], "little")
    later = b"\xa8\x06\x07\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x01x"
    assert decode(built(frame[:size] + later, frame[size:-39])) == message()
