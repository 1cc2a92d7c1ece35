"""Arrays on the wire: three dtypes, and refusals that cost nothing."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest

from fednode.core.types import Tensors
from fednode.errors import FednodeError, FrameError
from fednode.wire.tensors import DTYPES, Dtype, Limits, pack, payload_bytes, roundtrip, unpack
from tests.unit.wire.samples import prompts

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 0, 2), (2, 3, 4), (1,) * 8]


def entry(**changes: Any) -> dict[str, Any]:
    """Return a valid array entry of two float32 numbers, with changes; None removes a field."""
    fields: dict[str, Any] = {"d": "float32", "s": [2], "b": bytes(8)} | changes
    return {key: value for key, value in fields.items() if value is not None}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_survives(shape: tuple[int, ...], dtype: Dtype) -> None:
    sent = Tensors({"a": np.full(shape, 0.5), "b.c/d:e-f_0": np.full(shape, -2.0)})
    got, _ = unpack(pack(sent, dtype))
    assert got.shapes == sent.shapes
    assert got == roundtrip(sent, dtype)
    if dtype != "int8":
        assert got == sent


def test_float32_keeps_every_bit_even_of_what_is_no_number() -> None:
    bits = np.array([0x7F800001, 0x7FC00000, 0xFF800000, 0x80000000, 1], dtype="<u4")
    got, _ = unpack(pack(Tensors({"a": bits.view("<f4")}), "float32"))
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
    got, _ = unpack(pack(Tensors({"a": [number, 0.0]}), "int8"))
    assert got.finite()
    assert got["a"][0] == pytest.approx(number, rel=1e-5, abs=1e-42)
    assert got["a"][1] == 0.0


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_int8_refuses_what_is_not_finite(number: float) -> None:
    with pytest.raises(FednodeError, match="a holds a number that is not finite"):
        pack(Tensors({"a": [1.0, number]}), "int8")


def test_numbers_that_are_not_finite_reach_the_gate() -> None:
    got, _ = unpack(pack(Tensors({"a": [np.nan, np.inf]}), "float16"))
    assert not got.finite()


def test_no_arrays_take_no_bytes() -> None:
    assert pack(Tensors(), "int8") == b""
    assert unpack(b"") == (Tensors(), None)
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


BROKEN: list[tuple[str, Any, str]] = [
    ("not a map", [1], "not msgpack"),
    ("a number", 7, "not msgpack"),
    ("too many arrays", {f"a{number}": entry() for number in range(257)}, "257 arrays; at most"),
    ("a bad name", {"a b": entry()}, "name 'a b' is not valid"),
    ("a name of bytes", {b"a": entry()}, "an array's name is a bytes"),
    ("an entry that is no map", {"a": [1, 2, 3]}, "fields of a are cut short or not msgpack"),
    ("no dtype", {"a": entry(d=None)}, "dtype of a is not one of"),
    ("a foreign dtype", {"a": entry(d="object")}, "dtype of a is not one of"),
    ("a dtype that is no text", {"a": entry(d=4)}, "dtype of a is a int"),
    ("a dtype that is a list", {"a": entry(d=["float32"])}, "dtype of a is missing or not a str"),
    ("no shape", {"a": entry(s=None)}, "has the fields"),
    ("a shape that is no list", {"a": entry(s=2)}, "axes of a are cut short or not msgpack"),
    ("nine axes", {"a": entry(s=[1] * 9)}, "9 axes of a; at most 8"),
    ("a negative length", {"a": entry(s=[-2])}, "length of a is -2"),
    ("a length that is true", {"a": entry(s=[True, 2])}, "length of a is True"),
    ("a length with a fraction", {"a": entry(s=[2.0])}, "length of a is a float"),
    ("a length that is a list", {"a": entry(s=[[2]])}, "length of a is missing or not a int"),
    ("lengths beyond memory", {"a": entry(s=[2**40, 2**40])}, "more than 67,108,864 bytes"),
    ("an empty array of huge axes", {"a": entry(s=[0, 2**60], b=b"")}, "more than 67,108,864"),
    ("bytes of another shape", {"a": entry(s=[3])}, r"a has 8 bytes, but \[3\] in float32 takes"),
    ("no bytes", {"a": entry(b=None)}, "has the fields"),
    ("text for bytes", {"a": entry(b="12345678")}, "bytes of a is a str"),
    ("a scale where none belongs", {"a": entry(q=1.0)}, "has the fields"),
    ("no scale for int8", {"a": entry(d="int8", b=b"ab")}, "has the fields"),
    ("a scale that is no number", {"a": entry(d="int8", b=b"ab", q=np.nan)}, "scale of a is nan"),
    ("an endless scale", {"a": entry(d="int8", b=b"ab", q=np.inf)}, "scale of a is inf"),
    ("a scale below zero", {"a": entry(d="int8", b=b"ab", q=-1.0)}, "scale of a is -1.0"),
    ("a scale that overflows", {"a": entry(d="int8", b=b"ab", q=3e38)}, "scale of a is 3e"),
    ("a whole scale", {"a": entry(d="int8", b=b"ab", q=1)}, "scale of a is a int"),
    ("a foreign field", {"a": entry(x=1)}, "field 'x' of a is unknown"),
    ("five fields", {"a": entry(q=1.0, x=1)}, "5 fields of a; at most 4"),
]


@pytest.mark.parametrize(
    ("content", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_what_pack_would_not_write_is_refused(content: Any, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        unpack(msgpack.packb(content))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pack_writes_what_msgpack_writes(dtype: Dtype) -> None:
    sizes = (0, 1, 60, 300, 70_000)
    tensors = Tensors({f"array-{size}": np.linspace(-1, 1, size) for size in sizes})
    packed = pack(tensors, dtype)
    assert msgpack.packb(msgpack.unpackb(packed), use_single_float=True) == packed


@pytest.mark.parametrize("length", [1, 40, 300, 70_000])
def test_bytes_and_texts_of_every_form_are_read(length: int) -> None:
    numbers = bytes(length)
    for name in ("a", "a" * 40, "a" * 128):
        packed = msgpack.packb({name: entry(d="int8", s=[length], b=numbers, q=0.5)})
        assert unpack(packed)[0].shapes == {name: (length,)}
    with pytest.raises(FrameError, match=r"dtype of a (has 70,000 bytes|is not one of)"):
        unpack(msgpack.packb({"a": entry(d="x" * length)}))


def test_a_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(FrameError, match="an array's name is not UTF-8"):
        unpack(b"\x81\xa1\xff" + msgpack.packb(entry()))
    with pytest.raises(FrameError, match="bytes of a is a NoneType, not a bytes"):
        unpack(b"\x81\xa1a\x81\xa1b\xc0")


def test_names_and_fields_must_not_repeat() -> None:
    one = msgpack.packb("a") + msgpack.packb(entry())
    with pytest.raises(FrameError, match="'a' is not valid or occurs twice"):
        unpack(b"\x82" + one + one)
    with pytest.raises(FrameError, match="field 's' of a occurs twice"):
        unpack(b"\x81" + msgpack.packb("a") + b"\x82" + (msgpack.packb("s") + b"\x90") * 2)


def test_extensions_and_leftovers_are_refused() -> None:
    good = msgpack.packb({"a": entry()})
    for extension in (msgpack.ExtType(5, b""), msgpack.Timestamp(1)):
        with pytest.raises(FrameError, match="bytes of a is missing or not"):
            unpack(msgpack.packb({"a": entry(b=extension)}))
    with pytest.raises(FrameError, match="bytes follow the last array"):
        unpack(good + b"\x00")
    for length in range(1, len(good)):
        with pytest.raises(FrameError):
            unpack(good[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\x83\xa1s\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\x83\xa1b\xc6\xff\xff\xff\xff",
        b"\x81\xdb\xff\xff\xff\xff",
        b"\x81\xa1a\x83\xa1b" + b"\x91" * 100_000,
        b"\x91" * 100_000,
        b"\x81\xa1a\x83\xa1s\x91\xcf" + b"\xff" * 8 + b"\xa1d\xa4int8",
    ],
    ids=["map", "fields", "axes", "bytes", "text", "nested field", "nested", "length"],
)
def test_announced_sizes_cost_nothing(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(FrameError):
        unpack(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_limit_counts_float32_whatever_travels() -> None:
    limits = Limits(tensor_bytes=64)
    fits = Tensors({"a": np.ones(8), "b": np.ones(8)})
    for dtype in DTYPES:
        assert unpack(pack(fits, dtype, limits), limits)[0].shapes == fits.shapes
        over = pack(Tensors({"a": np.ones(8), "b": np.ones(9)}), dtype)
        with pytest.raises(FrameError, match="more than 64 bytes in float32"):
            unpack(over, limits)
