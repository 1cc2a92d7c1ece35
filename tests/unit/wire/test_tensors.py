"""Arrays on the wire: three dtypes, and refusals that cost nothing."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest

from fednode.core.types import Tensors
from fednode.errors import FednodeError, FrameError
from fednode.wire.tensors import (
    DTYPES,
    LIMITS,
    Dtype,
    Limits,
    pack,
    payload_bytes,
    roundtrip,
    unpack,
)
from tests.unit.wire.samples import joined, prompts

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 0, 2), (2, 3, 4), (1,) * 8]


def table(*entries: Any, dtype: Any = "float32") -> bytes:
    """Return a packed table with any dtype and entries."""
    packed: bytes = msgpack.packb([dtype, list(entries)], use_single_float=True)
    return packed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_survives(shape: tuple[int, ...], dtype: Dtype) -> None:
    sent = Tensors({"a": np.full(shape, 0.5), "b.c/d:e-f_0": np.full(shape, -2.0)})
    got, _ = unpack(*joined(pack(sent, dtype)))
    assert got.shapes == sent.shapes
    assert got == roundtrip(sent, dtype)
    if dtype != "int8":
        assert got == sent


def test_float32_keeps_every_bit_even_of_what_is_no_number() -> None:
    bits = np.array([0x7F800001, 0x7FC00000, 0xFF800000, 0x80000000, 1], dtype="<u4")
    got, _ = unpack(*joined(pack(Tensors({"a": bits.view("<f4")}), "float32")))
    assert got["a"].astype("<f4").tobytes() == bits.tobytes()


def test_float16_rounds_to_nearest_and_keeps_infinity() -> None:
    got = roundtrip(Tensors({"a": [1 + 2**-12, 65504.0, np.inf, -np.inf, 1e-9]}), "float16")
    assert got["a"].tolist() == [1.0, 65504.0, np.inf, -np.inf, 0.0]


@pytest.mark.parametrize("number", [65520.0, -70000.0, 3e38])
def test_float16_refuses_a_number_beyond_it(number: float) -> None:
    tensors = Tensors({"a": [1.0], "far": [0.0, number]})
    sentence = r"far holds .* and float16 ends at 65504; set the policy's wire_dtype to float32"
    with pytest.raises(FednodeError, match=sentence):
        pack(tensors, "float16")
    with pytest.raises(FednodeError, match=sentence):
        roundtrip(tensors, "float16")


def test_int8_errs_by_at_most_half_a_step_of_each_array() -> None:
    tensors = Tensors({"large": np.linspace(-300, 200, 501), "small": np.linspace(0, 1e-3, 11)})
    got = roundtrip(tensors, "int8")
    for name, largest in (("large", 300.0), ("small", 1e-3)):
        assert float(np.abs(got[name] - tensors[name]).max()) <= largest / 127 * 0.5001
        assert float(np.abs(got[name]).max()) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("number", [0.0, -0.0, 1e-45, 3.4028235e38, -3.4028235e38, 1e-38])
def test_int8_stays_finite_at_the_edges(number: float) -> None:
    got, _ = unpack(*joined(pack(Tensors({"a": [number, 0.0]}), "int8")))
    assert got.finite()
    assert got["a"][0] == pytest.approx(number, rel=1e-5, abs=1e-42)
    assert got["a"][1] == 0.0


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_int8_refuses_what_is_not_finite(number: float) -> None:
    with pytest.raises(FednodeError, match="a holds a number that is not finite"):
        pack(Tensors({"a": [1.0, number]}), "int8")


def test_numbers_that_are_not_finite_reach_the_gate() -> None:
    got, _ = unpack(*joined(pack(Tensors({"a": [np.nan, np.inf]}), "float16")))
    assert not got.finite()


def test_no_arrays_take_no_bytes() -> None:
    assert pack(Tensors(), "int8") == (b"", ())
    assert unpack(b"", b"") == (Tensors(), None)
    assert payload_bytes(Tensors(), "int8") == 0


def test_what_no_receiver_takes_is_not_packed() -> None:
    with pytest.raises(FednodeError, match="wire dtype 'float64' is unknown"):
        pack(prompts(), "float64")  # type: ignore[arg-type]
    with pytest.raises(FednodeError, match="257 arrays"):
        pack(Tensors({f"a{number}": 0.0 for number in range(257)}), "float32")
    with pytest.raises(FednodeError, match=r"8,192 bytes in a message; at most 8,191"):
        pack(prompts(), "float16", Limits(tensor_bytes=8191))
    with pytest.raises(FednodeError, match="a has 9 axes; at most 8"):
        pack(Tensors({"a": np.zeros((1,) * 9)}), "float32")
    for name in ("", "a b", "é", "a" * 129, "/a", "a\n"):
        with pytest.raises(FednodeError, match="cannot travel under the name"):
            pack(Tensors({name: 0.0}), "float32")


A = ["a", 0, [2]]
SCALED = ["a", 0, [2], 0.5]
BROKEN: list[tuple[str, bytes, int, str]] = [
    ("a map", msgpack.packb({"a": 1}), 8, "not what msgpack packs: 1 exceeds max_map_len"),
    ("an empty map", b"\x80", 8, r"table of arrays is \{\}, not a dtype and a list of arrays"),
    ("a number", b"\x07", 8, "table of arrays is 7, not a dtype and a list of arrays"),
    ("a text", b"\xa1a", 8, "table of arrays is 'a', not a dtype and a list of arrays"),
    ("three parts", msgpack.packb(["float32", [A], 1]), 8, "table of arrays is a list of 3"),
    ("no list of arrays", msgpack.packb(["float32", 7]), 8, "table of arrays is a list of 2"),
    ("too many arrays", table(*[A] * 257), 8, "257 exceeds max_array_len"),
    ("no dtype", table(A, dtype=None), 8, "dtype of the arrays is None, not one of float32"),
    ("a foreign dtype", table(A, dtype="object"), 8, "dtype of the arrays is 'object', not one of"),
    ("a dtype in bytes", table(A, dtype=b"float32"), 8, "7 exceeds max_bin_len"),
    ("a dtype of list", table(A, dtype=["int8"]), 8, "dtype of the arrays is a list of 1, not one"),
    ("no list of fields", table("a"), 8, "an array in float32 is 'a', not name, offset, shape"),
    ("two fields", table(A[:2]), 8, "array in float32 is a list of 2, not name, offset, shape"),
    ("a scale too many", table(SCALED), 8, "array in float32 is a list of 4, not name"),
    ("no scale", table(A, dtype="int8"), 2, "in int8 is a list of 3, not name, offset, shape, sc"),
    ("a bad name", table(["a b", 0, [2]]), 8, "the array name 'a b' is not valid"),
    ("an empty name", table(["", 0, [2]]), 8, "the array name '' is not valid"),
    ("a long name", table(["a" * 129, 0, [2]]), 8, "129 exceeds max_str_len"),
    ("a name in bytes", table([b"a", 0, [2]]), 8, "1 exceeds max_bin_len"),
    ("a name of number", table([4, 0, [2]]), 8, "the array name 4 is not valid"),
    ("a name of no text", b"\x92\xa4int8\x91\x93\xa1\xff\x00\x90", 8, "not what msgpack packs"),
    ("a name twice", table(A, ["a", 8, [2]]), 16, "array a follows a; names must be sorted and"),
    ("names not sorted", table(["b", 0, [2]], ["a", 8, [2]]), 16, "array a follows b; names must"),
    ("a negative offset", table(["a", -4, [2]]), 8, "offset of a is -4, not a whole number from"),
    ("an offset of true", table(["a", True, [2]]), 8, "offset of a is True, not a whole number"),
    ("a broken offset", table(["a", 0.0, [2]]), 8, "offset of a is 0.0, not a whole number"),
    ("a gap ahead", table(["a", 4, [1]]), 8, "a has the offset 4, .* before it end at 0; arrays"),
    (
        "a gap between",
        table(A, ["b", 12, [1]]),
        16,
        "b has the offset 12, .* end at 8; arrays must",
    ),
    ("an overlap", table(A, ["b", 4, [2]]), 12, "b has the offset 4, .* end at 8; arrays must"),
    ("the same place", table(A, ["b", 0, [2]]), 8, "b has the offset 0, .* end at 8; arrays must"),
    ("an offset outside", table(["a", 2**40, [2]]), 8, f"a has the offset {2**40}, .* end at 0"),
    (
        "an end outside",
        table(["a", 0, [3]]),
        8,
        r"a with the shape \[3\] in float32 ends at byte 12",
    ),
    ("bytes left over", table(["a", 0, [1]]), 8, "arrays end at byte 4, but the block has 8 bytes"),
    ("no array at all", table(), 8, "arrays end at byte 0, but the block has 8 bytes"),
    ("no table", b"", 8, "not what msgpack packs"),
    ("another dtype", table(A, dtype="float16"), 8, "arrays end at byte 4, but the block has 8"),
    ("no list of lengths", table(["a", 0, 2]), 8, "shape of a is 2, not whole numbers from 0"),
    ("nine axes", table(["a", 0, [1] * 9]), 4, "a has 9 axes; at most 8 are taken"),
    ("a negative length", table(["a", 0, [-2]]), 8, "shape of a is a list of 1, not whole numbers"),
    ("a length of true", table(["a", 0, [True, 2]]), 8, "shape of a is a list of 2, not whole"),
    ("a broken length", table(["a", 0, [2.0]]), 8, "shape of a is a list of 1, not whole numbers"),
    ("a length of list", table(["a", 0, [[2]]]), 8, "shape of a is a list of 1, not whole numbers"),
    ("2**40 numbers", table(["a", 0, [2**40]]), 8, "more than 67,108,864 bytes in float32"),
    ("beyond memory", table(["a", 0, [2**63, 2**63]]), 8, "more than 67,108,864 bytes in float32"),
    ("huge and empty", table(["a", 0, [0, 2**60]]), 0, "more than 67,108,864 bytes in float32"),
    ("a whole scale", table([*SCALED[:3], 1], dtype="int8"), 2, "scale of a is 1, not a fraction"),
    ("a scale of text", table([*SCALED[:3], "x"], dtype="int8"), 2, "scale of a is 'x', not a fr"),
    ("a scale of nan", table([*SCALED[:3], np.nan], dtype="int8"), 2, "scale of a is nan"),
    ("an endless scale", table([*SCALED[:3], np.inf], dtype="int8"), 2, "scale of a is inf"),
    ("a negative scale", table([*SCALED[:3], -1.0], dtype="int8"), 2, "scale of a is -1.0"),
    ("a scale too large", table([*SCALED[:3], 3e38], dtype="int8"), 2, "scale of a is 3.*e.38"),
    ("an extension", table(["a", msgpack.ExtType(5, b"x"), [2]]), 8, "2 exceeds max_ext_len"),
    ("a moment", table(["a", msgpack.Timestamp(1), [2]]), 8, "5 exceeds max_ext_len"),
    ("bytes behind it", table(A) + b"\x00", 8, "not what msgpack packs"),
]


@pytest.mark.parametrize(
    ("packed", "size", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_what_pack_would_not_write_is_refused(packed: bytes, size: int, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence) as refused:
        unpack(packed, bytes(size))
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_the_tables_that_the_broken_ones_were_made_of_are_taken() -> None:
    assert unpack(table(A), bytes(8))[0].shapes == {"a": (2,)}
    assert unpack(table(A, ["b", 8, [1]]), bytes(12))[0].shapes == {"a": (2,), "b": (1,)}
    assert unpack(table(SCALED, dtype="int8"), b"\x02\xff")[0]["a"].tolist() == [1.0, -0.5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_table_is_what_the_header_of_the_module_says(dtype: Dtype) -> None:
    size = {"float32": 4, "float16": 2, "int8": 1}[dtype]
    packed, block = joined(pack(Tensors({"b": np.full((3, 5), 0.5), "a": [1.0]}), dtype))
    scales = ([1 / 127], [0.5 / 127]) if dtype == "int8" else ([], [])
    entries = [["a", 0, [1], *scales[0]], ["b", size, [3, 5], *scales[1]]]
    assert packed == table(*entries, dtype=dtype)
    assert len(block) == 16 * size


def test_a_table_that_ends_too_early_is_refused() -> None:
    good = table(A)
    for length in range(1, len(good)):
        with pytest.raises(FrameError):
            unpack(good[:length], bytes(8))


def test_a_table_over_the_limit_is_refused_before_it_is_read() -> None:
    small = Limits(arrays=2, dimensions=2)
    most = small.table_bytes
    with pytest.raises(FrameError, match=f"of {most + 1:,} bytes; at most {most:,} fit"):
        unpack(bytes(most + 1), b"", small)
    full = Tensors({f"{number:0128}": np.zeros((1, 1)) for number in range(2)})
    assert len(pack(full, "int8")[0]) <= most
    assert unpack(*joined(pack(full, "int8")), small)[0] == full


@pytest.mark.parametrize(
    "packed",
    [
        b"\xdf\xff\xff\xff\xff",
        b"\x92\xa4int8\xdd\xff\xff\xff\xff",
        b"\x92\xa4int8\x91\xdd\xff\xff\xff\xff",
        b"\x92\xa4int8\x91\x93\xa1a\x00\xdd\xff\xff\xff\xff",
        b"\x92\xdb\xff\xff\xff\xff",
        b"\x92\xc6\xff\xff\xff\xff",
        b"\x92\xc9\xff\xff\xff\xff\x05",
        b"\x91" * 100_000,
        table(["a", 0, [2**40]]),
        table(["a", 0, [2**40, 2**40]]),
        table(["a", 2**40, [2]]),
        table(["a", 0, [0, 2**60]]),
        table(*[["a", 0, [2**40]]] * 256),
    ],
    ids=[
        *("map", "arrays", "fields", "axes", "text", "bytes", "extension", "nested"),
        *("2**40 numbers", "two axes", "offset", "huge and empty", "all huge"),
    ],
)
def test_announced_sizes_cost_nothing(packed: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(FrameError):
        unpack(packed, bytes(8))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


LISTS = b"\x92\xa4int8\xdc\x01\x00" + (b"\xdc\x01\x00" + b"\x91\x07" * 256) * 131


@pytest.mark.parametrize("packed", [LISTS, b"\xdc\x01\x00" * 20_000], ids=["small", "open"])
def test_a_full_table_of_lists_costs_a_few_megabytes(packed: bytes) -> None:
    """A list of one number takes two bytes of a table, and some sixty of memory."""
    assert len(packed) <= LIMITS.table_bytes
    tracemalloc.start()
    with pytest.raises(FrameError):
        unpack(packed, b"")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_the_limit_counts_float32_whatever_travels() -> None:
    limits = Limits(tensor_bytes=64)
    fits = Tensors({"a": np.ones(8), "b": np.ones(8)})
    for dtype in DTYPES:
        assert unpack(*joined(pack(fits, dtype, limits)), limits)[0].shapes == fits.shapes
        over = joined(pack(Tensors({"a": np.ones(8), "b": np.ones(9)}), dtype))
        with pytest.raises(FrameError, match="more than 64 bytes in float32"):
            unpack(*over, limits)
