"""The codec holds for any message. Any bytes end in a message or a FrameError (tests/fuzz, too)."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fednode.core.events import AckCode
from fednode.core.merge.numbers import roundtrip
from fednode.core.types import DTYPES, STANDINGS, Array, Dtype, MemberUpdate, Message, Tensors
from fednode.errors import FednodeError, FrameError
from fednode.wire.codec import Ack, decode, decode_ack, encode, encode_ack
from fednode.wire.tensors import pack, unpack
from tests.unit.wire.samples import START, built, changed, message, prompts, split

NAME_LETTERS = string.ascii_letters + string.digits + "_"
letters = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
labels = st.text(letters, min_size=1, max_size=128)
words = st.from_regex(r"\A[a-z][a-z0-9_.-]{0,62}\Z")
digests = st.binary(max_size=64).map(bytes.hex)
numbers = st.floats(width=32)
names = st.builds(
    "".join, st.tuples(st.sampled_from(NAME_LETTERS), st.text(NAME_LETTERS + ".:/-", max_size=127))
)
shapes = st.one_of(st.just(()), arrays.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=3))


places = st.text(string.ascii_letters + ".:-", max_size=300)
members = st.builds(
    MemberUpdate,
    st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,62}\Z"),
    st.sampled_from(STANDINGS),
    st.integers(0, 2**63 - 1),
    places,
    places,
    st.binary(max_size=1024),
)


def tensors_of(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Tensors]:
    some: st.SearchStrategy[Array] = shapes.flatmap(
        lambda shape: arrays.arrays(np.float32, shape, elements=elements)
    )
    made = st.dictionaries(names, some, max_size=4)
    classes = st.sets(st.text(letters, min_size=1, max_size=64), max_size=4)
    return st.builds(
        lambda held, named: Tensors(held, sorted(named) if held else ()), made, classes
    )


def messages(elements: st.SearchStrategy[float] = numbers) -> st.SearchStrategy[Message]:
    whole = st.integers(0, 2**63 - 1)
    return st.builds(
        Message,
        mesh=labels,
        fingerprint=digests,
        policy=words,
        sender=st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,62}\Z"),
        round=whole,
        phase=words,
        tensors=tensors_of(elements),
        base=digests,
        samples=whole,
        facts=st.dictionaries(labels, st.text(letters, max_size=1024), max_size=5),
        members=st.lists(members, max_size=3).map(tuple),
        active=st.booleans(),
        boot=st.from_regex(r"\A([0-9a-f]{8})?\Z"),
    )


@given(messages())
def test_any_message_survives_in_float32(sent: Message) -> None:
    assert decode(encode(sent, "float32")) == sent


@given(messages(st.floats(width=16)))
def test_any_message_of_float16_numbers_survives_in_float16(sent: Message) -> None:
    assert decode(encode(sent, "float16")) == sent


@given(messages(), st.sampled_from(DTYPES))
def test_a_message_arrives_as_roundtrip_says_or_is_not_sent(sent: Message, dtype: Dtype) -> None:
    try:
        promised = roundtrip(sent.tensors, dtype)
    except FednodeError as fault:
        with pytest.raises(FednodeError) as raised:
            encode(sent, dtype)
        assert str(raised.value) == str(fault)  # noqa: PT017
    else:
        assert decode(encode(sent, dtype)).tensors == promised


@given(tensors_of(st.floats(-(2.0**100), 2.0**100, width=32)))
def test_int8_errs_by_at_most_half_a_step(tensors: Tensors) -> None:
    got = roundtrip(tensors, "int8")
    for name, array in tensors.items():
        step = float(np.abs(array).max(initial=0.0)) / 127
        error = np.abs(got[name].astype(np.float64) - array.astype(np.float64))
        # A float32 scale is off by a rounding, and by up to a subnormal number near zero.
        assert float(error.max(initial=0.0)) <= step * 0.50001 + 127 * 2.0**-149


@given(st.data(), messages(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_a_frame_that_was_cut_or_went_on_is_refused(
    data: st.DataObject, sent: Message, dtype: Dtype
) -> None:
    frame = encode(sent, dtype)
    length = data.draw(st.integers(0, len(frame) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    for wrong in (frame[:length], frame + more):
        with pytest.raises(FrameError, match=r"damaged|does not begin"):
            decode(wrong)


def sent_on(frame: bytes) -> tuple[Message, Message] | None:
    """Return what a frame holds, and the same after it was sent once more; None for no message."""
    try:
        got = decode(frame)
    except FrameError:
        return None
    return got, decode(encode(got, "float32"))


def altered(data: st.DataObject, frame: bytes, begin: int = 0) -> bytes:
    """Return bytes of which a few from `begin` on are others."""
    other = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        other[data.draw(st.integers(begin, len(other) - 1))] = data.draw(st.integers(0, 255))
    return bytes(other)


def arrays_altered(data: st.DataObject, frame: bytes) -> bytes:
    head, arrays = split(encode(message(tensors=prompts(2, 3)), decode(frame).dtype or "int8"))
    return built(head, altered(data, arrays))


def head_of_another_length(data: st.DataObject, frame: bytes) -> bytes:
    body = frame[START.size :]
    cut = data.draw(st.integers(0, len(body)), label="head")
    return built(body[:cut], body[cut:])


WAYS: dict[str, Callable[[st.DataObject, bytes], bytes]] = {
    "anywhere": altered,
    "behind its start": lambda data, frame: altered(data, frame, START.size),
    "arrays": arrays_altered,
    "metadata": lambda data, frame: changed(frame, metadata=data.draw(st.binary(max_size=200))),
    "a head of another length": head_of_another_length,
}


@pytest.mark.parametrize("way", WAYS)
@given(st.data(), messages(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_a_changed_frame_ends_in_a_message_or_a_frame_error(
    way: str, data: st.DataObject, sent: Message, dtype: Dtype
) -> None:
    got = sent_on(WAYS[way](data, encode(sent, dtype)))
    assert got is None or got[0] == got[1]


@given(st.data())
def test_any_header_of_the_right_form_ends_in_tensors_or_a_frame_error(data: st.DataObject) -> None:
    lengths = st.one_of(st.integers(0, 3), st.integers(-1, 2**64 - 1))
    entries = st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(("F32", "F16", "I8")),
            "shape": st.lists(lengths, max_size=9),
            "data_offsets": st.lists(st.integers(0, 16), min_size=2, max_size=2),
        }
    )
    header = st.dictionaries(st.sampled_from((".scale", "a", "b", "c")), entries, max_size=4)
    text = json.dumps(data.draw(header, label="header"), sort_keys=True).encode()
    block = data.draw(st.binary(max_size=48), label="block")
    try:
        got, _ = unpack(len(text).to_bytes(8, "little") + text + block)
    except FrameError:
        return
    assert unpack(b"".join(pack(got, "float32")))[0] == got


@given(st.sampled_from(get_args(AckCode)), st.text(max_size=1200))
def test_any_detail_can_be_sent_and_printed(code: AckCode, detail: str) -> None:
    got = decode_ack(encode_ack(code, detail))
    assert got.code == code
    assert got.detail.isprintable()
    assert len(got.detail) == min(len(detail), 1000)
    if detail.isprintable() and len(detail) <= 1000:
        assert got == Ack(code, detail)
