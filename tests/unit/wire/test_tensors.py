"""Arrays on the wire: three dtypes, and refusals that cost nothing."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from fednode.core.merge.numbers import roundtrip
from fednode.core.types import DTYPES, Dtype, Tensors
from fednode.errors import FednodeError, FrameError
from fednode.wire import tensors as module
from fednode.wire.tensors import pack, payload_bytes, unpack
from tests.unit.wire.samples import prompts


def file(header: Any, block: bytes = b"") -> bytes:
    """Return a safetensors file with any header and any numbers."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + block


def entry(begin: int, end: int, shape: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def packed(tensors: Tensors, dtype: Dtype) -> bytes:
    return b"".join(pack(tensors, dtype))


def test_float32_keeps_every_bit_even_of_what_is_no_number() -> None:
    bits = np.array([0x7F800001, 0x7FC00000, 0xFF800000, 0x80000000, 1], dtype="<u4")
    got, _ = unpack(packed(Tensors({"a": bits.view("<f4")}), "float32"))
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


@pytest.mark.parametrize("number", [0.0, -0.0, 1e-45, 3.4028235e38, -3.4028235e38, 1e-38])
def test_int8_stays_finite_at_the_edges(number: float) -> None:
    got, _ = unpack(packed(Tensors({"a": [number, 0.0]}), "int8"))
    assert got.finite()
    assert got["a"][0] == pytest.approx(number, rel=1e-5, abs=1e-42)
    assert got["a"][1] == 0.0


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_int8_refuses_what_is_not_finite(number: float) -> None:
    with pytest.raises(FednodeError, match="a holds a number that is not finite"):
        pack(Tensors({"a": [1.0, number]}), "int8")


def test_numbers_that_are_not_finite_reach_the_gate() -> None:
    got, _ = unpack(packed(Tensors({"a": [np.nan, np.inf]}), "float16"))
    assert not got.finite()


def test_no_arrays_take_no_bytes() -> None:
    assert pack(Tensors(), "int8") == []
    assert unpack(b"") == (Tensors(), None)
    assert payload_bytes(Tensors(), "int8") == 0


def test_what_no_receiver_takes_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FednodeError, match="wire dtype 'float64' is unknown"):
        pack(prompts(), "float64")  # type: ignore[arg-type]
    with pytest.raises(FednodeError, match="257 arrays"):
        pack(Tensors({f"a{number}": 0.0 for number in range(257)}), "float32")
    with monkeypatch.context() as small:
        small.setattr(module, "TENSOR_BYTES_MAX", 8191)
        with pytest.raises(FednodeError, match=r"8,192 bytes in a message; at most 8,191"):
            pack(prompts(), "float16")
    with pytest.raises(FednodeError, match="a has 9 axes; at most 8"):
        pack(Tensors({"a": np.zeros((1,) * 9)}), "float32")
    for name in ("", "a b", "é", "a" * 129, "/a", "a\n", ".scale"):
        with pytest.raises(FednodeError, match="cannot travel under the name"):
            pack(Tensors({name: 0.0}), "float32")


TWO = bytes(8)
SCALED = {".scale": entry(0, 4, [1]), "a": entry(4, 6, [2], "I8")}
HALF = np.float32(0.5).tobytes()


def scaled(number: float) -> bytes:
    """Return a file of int8 with any scale."""
    return file(SCALED, np.float32(number).tobytes() + b"\x02\xff")


BROKEN: list[tuple[bytes, str]] = [
    (b"\x00", "header of the arrays"),
    ((2**40).to_bytes(8, "little") + b"{}", "has 1,099,511,627,776 bytes; at most"),
    *(
        (file(text), "header of the arrays is not JSON")
        for text in (b"{", b'{"\xff": 1}', b"[" * 100_000, b"9" * 5000)
    ),
    (file([1]), "does not name at most 256 arrays"),
    (file({f"a{n:03}": entry(0, 0, [0]) for n in range(258)}), "at most 256"),
    (file({}), "arrays of 0 dtypes"),
    (file({}, TWO), "arrays end at byte 0 of 8 bytes"),
    *(
        (file({name: entry(0, 8, [2])}, TWO), f"the array name '{name[:40]}' is not valid")
        for name in ("a b", "", "a" * 129)
    ),
    (file(b'{"\\ud800": 1}'), "the array name '.ud800' is not valid"),
    (file({"b": entry(0, 4, [1]), "a": entry(4, 8, [1])}, TWO), "array a follows b; names must"),
    *(
        (file({"a": wrong}, TWO), "the array a has no dtype of F32, F16, I8, shape and")
        for wrong in (
            *(7, {}, entry(0, 8, [1], "F64"), entry(0, 8, [2], ["F32"]), entry(0, 8, 2)),
            *(entry(0, 8, shape) for shape in ([-2], [True, 2], [2.0])),
        )
    ),
    (file(b'{"a": 1, "a": 2}', TWO), "the array a has no dtype"),
    (file({"a": entry(0, 4, [1] * 9)}, HALF), "a has 9 axes; at most 8 fit"),
    (file({"a": entry(4, 8, [1])}, TWO), "does not lie at byte 0 of the 8 bytes"),
    (
        file({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, bytes(12)),
        "b of 4 bytes does not lie at byte 4 .* neither overlap nor leave gaps",
    ),
    (
        file({"a": entry(0, 8, [2]), "b": entry(0, 8, [2])}, TWO),
        "b of 8 bytes does not lie at byte 8",
    ),
    (file({"a": entry(0, 12, [3])}, TWO), "a of 12 bytes does not lie at byte 0"),
    (file({"a": entry(0, 8, [1])}, TWO), "a of 4 bytes does not lie at byte 0"),
    (file({"a": entry(0, 4, [1])}, TWO), "end at byte 4 of 8 bytes"),
    # A size that is only claimed, also beyond numpy's limit, or of an empty array.
    (file({"a": entry(0, 2**42, [2**40])}, TWO), "more than 67,108,864 bytes"),
    (file({"a": entry(0, 8, [2**63, 2**63])}, TWO), "more than 67,108,864"),
    (file({"a": entry(0, 0, [0, 2**60])}), "more than 67,108,864"),
    (
        file({"a": entry(0, 4, [1]), "b": entry(4, 6, [1], "F16")}, bytes(6)),
        "arrays of 2 dtypes in a message; all must have one",
    ),
    (file({"a": entry(0, 2, [2], "I8")}, b"\x02\xff"), "arrays in int8 without scales"),
    (
        file({".scale": entry(0, 4, [1]), "a": entry(4, 12, [2])}, bytes(12)),
        "arrays in float32 with scales",
    ),
    (file({".scale": entry(0, 0, [0])}), "arrays of 0 dtypes"),
    (
        file({".scale": entry(0, 8, [2]), "a": entry(8, 10, [2], "I8")}, bytes(10)),
        "scales in F32 of the shape .2.",
    ),
    (
        file({".scale": entry(0, 2, [1], "F16"), "a": entry(2, 4, [2], "I8")}, bytes(4)),
        "scales in F16 of the shape .1.",
    ),
    *(
        (scaled(number), "a scale is not a number between 0 and 2.68e.36")
        for number in (np.nan, np.inf, -1.0, 3e38)
    ),
]


@pytest.mark.parametrize(("data", "sentence"), BROKEN, ids=lambda value: str(value)[-60:])
def test_what_pack_would_not_write_is_refused(data: bytes, sentence: str) -> None:
    tracemalloc.start()
    with pytest.raises(FrameError, match=sentence) as refused:
        unpack(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20, "a size that is only claimed costs nothing"
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_the_files_that_the_broken_ones_were_made_of_are_taken() -> None:
    assert unpack(file({"a": entry(0, 8, [2])}, TWO))[0].shapes == {"a": (2,)}
    two = {"a": entry(0, 8, [2]), "b": entry(8, 12, [1])}
    assert unpack(file(two, bytes(12)))[0].shapes == {"a": (2,), "b": (1,)}
    assert unpack(scaled(0.5))[0]["a"].tolist() == [1.0, -0.5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_reader_of_safetensors_reads_what_is_packed(dtype: Dtype) -> None:
    sent = Tensors({"b": np.full((3, 5), 0.5), "a": [1.0], "c": np.float32(-2), "d": np.zeros(0)})
    got = safetensors.numpy.load(packed(sent, dtype))
    if dtype == "int8":
        scales = got.pop(".scale")
        assert scales.tolist() == pytest.approx([1 / 127, 0.5 / 127, 2 / 127, 0.0])
        got = {name: got[name] * scale for name, scale in zip("abcd", scales, strict=True)}
    assert {name: array.shape for name, array in got.items()} == sent.shapes
    for name, array in sent.items():
        assert got[name] == pytest.approx(array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_of_another_writer_of_safetensors_is_read(dtype: Dtype) -> None:
    kind = {"float32": np.float32, "float16": np.float16, "int8": np.int8}[dtype]
    arrays = {"a": np.ones((2, 3), kind), "b": np.ones(5, kind)}
    scales = {".scale": np.ones(2, np.float32)} if dtype == "int8" else {}
    got, found = unpack(safetensors.numpy.save(arrays | scales))
    assert (got, found) == (Tensors({"a": np.ones((2, 3)), "b": np.ones(5)}), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_payload_is_the_block(dtype: Dtype) -> None:
    sent = Tensors({"a": np.ones((3, 5)), "b": np.ones(7), "c": np.float32(1)})
    header, text, *block = pack(sent, dtype)
    assert payload_bytes(sent, dtype) == sum(map(len, block))
    assert payload_bytes(sent, dtype) == {"float32": 92, "float16": 46, "int8": 35}[dtype]
    assert int.from_bytes(header, "little") == len(text)


def test_a_header_over_the_limit_is_refused_before_it_is_read() -> None:
    most = module.HEADER_BYTES_MAX
    with pytest.raises(FrameError, match=f"has {most + 1:,} bytes; at most {most:,} fit"):
        unpack(file(b" " * (most + 1)))
    full = Tensors({f"{number:0128}": np.zeros((2, *(1,) * 7)) for number in range(256)})
    assert unpack(packed(full, "int8"))[0] == full


@pytest.mark.parametrize("part", [b"[7],", b"{},", b'{"a":[]},'])
def test_a_full_header_costs_a_few_megabytes(part: bytes) -> None:
    """A list of one number takes three bytes of a header, and some sixty of memory."""
    header = b"[" + part * ((module.HEADER_BYTES_MAX - 3) // len(part)) + b"7]"
    tracemalloc.start()
    with pytest.raises(FrameError):
        unpack(file(header))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20


def test_the_limit_counts_float32_whatever_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = Tensors({"a": np.ones(8), "b": np.ones(8)})
    over = Tensors({"a": np.ones(8), "b": np.ones(9)})
    sent = [(packed(fits, dtype), packed(over, dtype)) for dtype in DTYPES]
    monkeypatch.setattr(module, "TENSOR_BYTES_MAX", 64)
    for fit, too_much in sent:
        assert unpack(fit)[0].shapes == fits.shapes
        with pytest.raises(FrameError, match="more than 64 bytes in float32"):
            unpack(too_much)
