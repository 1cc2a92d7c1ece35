"""The codec holds for any message, and any bytes end in a message or a FrameError."""

from __future__ import annotations

import string
from typing import get_args

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fednode.core.events import AckCode
from fednode.core.types import Array, Message, Tensors
from fednode.errors import FednodeError, FrameError
from fednode.wire.codec import (
    DTYPES,
    Ack,
    Dtype,
    decode,
    decode_ack,
    encode,
    encode_ack,
    payload_bytes,
    roundtrip,
)
from fednode.wire.tensors import pack, unpack
from tests.unit.wire.samples import built, joined, message, opened, prompts, seal, sealed

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
        contributors=digests,
        samples=whole,
        facts=st.dictionaries(labels, st.text(letters, max_size=1024), max_size=5),
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


@given(tensors_of(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_payload_is_the_length_of_the_numbers(tensors: Tensors, dtype: Dtype) -> None:
    sent = message(tensors=tensors)
    emptied = message(tensors=Tensors({name: np.zeros(0) for name in tensors}))
    held = payload_bytes(sent, dtype)
    names_and_shapes = len(encode(emptied, dtype)) + 80 * len(tensors)
    # Empty arrays bring their scales too.
    assert held <= len(encode(sent, dtype)) <= held + names_and_shapes


@given(st.data(), messages(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_a_damaged_frame_is_refused(data: st.DataObject, sent: Message, dtype: Dtype) -> None:
    frame = bytearray(encode(sent, dtype))
    if data.draw(st.booleans(), label="truncate"):
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    else:
        position = data.draw(st.integers(0, len(frame) * 8 - 1))
        frame[position // 8] ^= 1 << position % 8
    with pytest.raises(FrameError, match="damaged"):
        decode(bytes(frame))


def sent_on(frame: bytes) -> tuple[Message, Message] | None:
    """Return what a frame holds, and the same after it was sent once more; None for no message."""
    try:
        got = decode(frame)
    except FrameError:
        return None
    return got, decode(encode(got, "float32"))


@given(st.binary(max_size=300))
@example(b"")
def test_any_bytes_end_in_a_message_or_a_frame_error(data: bytes) -> None:
    for frame in (data, seal(data)):
        got = sent_on(frame)
        assert got is None or got[0] == got[1]


@given(st.data(), messages(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_a_changed_body_with_a_right_checksum_ends_in_a_message_or_a_frame_error(
    data: st.DataObject, sent: Message, dtype: Dtype
) -> None:
    body = bytearray(encode(sent, dtype)[:-34])
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    got = sent_on(seal(bytes(body)))
    assert got is None or got[0] == got[1]


@given(st.data(), st.sampled_from(DTYPES))
def test_changed_arrays_with_a_right_checksum_end_in_a_message_or_a_frame_error(
    data: st.DataObject, dtype: Dtype
) -> None:
    envelope = opened(encode(message(tensors=prompts(2, 3)), dtype))
    changed = {"table": bytearray(envelope.table), "block": bytearray(envelope.block)}
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        part = changed[data.draw(st.sampled_from(sorted(changed)))]
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    envelope.table, envelope.block = bytes(changed["table"]), bytes(changed["block"])
    got = sent_on(sealed(envelope))
    assert got is None or got[0] == got[1]


@given(st.data(), messages(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_a_head_of_another_length_ends_in_a_message_or_a_frame_error(
    data: st.DataObject, sent: Message, dtype: Dtype
) -> None:
    body = encode(sent, dtype)[:-39]
    cut = data.draw(st.integers(0, len(body)), label="head")
    got = sent_on(built(body[:cut], body[cut:]))
    assert got is None or got[0] == got[1]


@given(st.data(), tensors_of(st.floats(-1.0, 1.0, width=16)), st.sampled_from(DTYPES))
def test_each_offset_is_the_end_of_the_array_before_it(
    data: st.DataObject, tensors: Tensors, dtype: Dtype
) -> None:
    table, block = joined(pack(tensors, dtype))
    if not table:
        return
    size = {"float32": 4, "float16": 2, "int8": 1}[dtype]
    found, entries = msgpack.unpackb(table)
    ends = np.cumsum([0, *(size * array.size for array in tensors.values())])
    assert (found, [entry[0] for entry in entries]) == (dtype, list(tensors))
    assert [entry[1] for entry in entries] == ends[:-1].tolist()
    assert len(block) == ends[-1]
    # Any other offset is refused, and so is a block of any other length.
    changed = data.draw(st.sampled_from(entries), label="array")
    wrong = st.integers(0, 2**63).filter(lambda offset: offset != changed[1])
    changed[1] = data.draw(wrong, label="offset")
    with pytest.raises(FrameError, match="must neither overlap nor leave gaps"):
        unpack(msgpack.packb([dtype, entries], use_single_float=True), block)
    more = data.draw(st.binary(min_size=1, max_size=9), label="more")
    with pytest.raises(FrameError, match="but the block has"):
        unpack(table, block + more)
    for length in {0, len(block) // 2, max(len(block) - 1, 0)} - {len(block)}:
        with pytest.raises(FrameError, match="but the block has"):
            unpack(table, block[:length])


@given(st.data())
def test_any_table_of_the_right_form_ends_in_tensors_or_a_frame_error(data: st.DataObject) -> None:
    lengths = st.one_of(st.integers(0, 3), st.integers(-1, 2**64 - 1))
    fields = st.tuples(st.sampled_from("abc"), st.integers(0, 16), st.lists(lengths, max_size=9))
    scaled = st.builds(lambda entry, scale: (*entry, scale), fields, numbers)
    entries = data.draw(st.lists(st.one_of(fields, scaled), max_size=4), label="entries")
    table = msgpack.packb([data.draw(st.sampled_from(DTYPES)), entries], use_single_float=True)
    block = data.draw(st.binary(max_size=48), label="block")
    try:
        got, _ = unpack(table, block)
    except FrameError:
        return
    assert unpack(*joined(pack(got, "float32")))[0] == got


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_any_array_bytes_end_in_tensors_or_a_frame_error(table: bytes, block: bytes) -> None:
    try:
        got, _ = unpack(table, block)
    except FrameError:
        return
    assert unpack(*joined(pack(got, "float32")))[0] == got


@given(st.binary(max_size=100))
def test_any_reply_ends_in_a_verdict_or_a_frame_error(data: bytes) -> None:
    try:
        got = decode_ack(data)
    except FrameError:
        return
    assert decode_ack(encode_ack(*got)) == got


@given(st.sampled_from(get_args(AckCode)), st.text(max_size=1200))
def test_any_detail_can_be_sent_and_printed(code: AckCode, detail: str) -> None:
    got = decode_ack(encode_ack(code, detail))
    assert got.code == code
    assert got.detail.isprintable()
    assert len(got.detail) == min(len(detail), 1000)
    if detail.isprintable() and len(detail) <= 1000:
        assert got == Ack(code, detail)
