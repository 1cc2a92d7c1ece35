"""What a receiver sees of arrays sent in float32, float16 or int8, and what cannot be sent."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.core.merge.numbers import ITEM_BYTES, SCALE_MAX, narrow, roundtrip, widen
from fednode.core.types import DTYPES, Tensors
from fednode.errors import FednodeError

VALUES = np.array([[-1.5, 0.0], [0.1, 3.0]], dtype=np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_have_the_bytes_that_the_table_says(dtype: str) -> None:
    _, elements = narrow("x", VALUES, dtype)  # type: ignore[arg-type]
    assert elements.itemsize == ITEM_BYTES[dtype]
    assert elements.dtype.byteorder in "<=|"
    assert elements.shape == VALUES.shape


def test_float32_arrives_bit_for_bit() -> None:
    tensors = Tensors({"x": VALUES, "y": [np.inf, 1e-45]})
    assert roundtrip(tensors, "float32") is tensors
    assert np.array_equal(widen(*narrow("x", VALUES, "float32")), VALUES)


def test_float16_arrives_as_numpy_rounds_it() -> None:
    sent = roundtrip(Tensors({"x": VALUES}), "float16")
    assert np.array_equal(sent["x"], VALUES.astype(np.float16).astype(np.float32))


def test_int8_arrives_as_the_nearest_of_255_steps() -> None:
    scale, elements = narrow("x", VALUES, "int8")
    assert scale == pytest.approx(3.0 / 127)
    assert elements.tolist() == [[round(-1.5 / scale), 0], [round(0.1 / scale), 127]]
    assert np.abs(widen(scale, elements) - VALUES).max() <= scale / 2 * 1.0001


def test_zeros_and_empty_arrays_have_no_scale() -> None:
    assert narrow("x", np.zeros((2, 3), np.float32), "int8")[0] == 0.0
    scale, elements = narrow("x", np.zeros((0, 3), np.float32), "int8")
    assert (scale, elements.shape) == (0.0, (0, 3))


def test_the_largest_number_of_float32_survives_int8() -> None:
    largest = np.array([np.finfo(np.float32).max], dtype=np.float32)
    scale, elements = narrow("x", largest, "int8")
    assert scale == SCALE_MAX
    assert np.isfinite(widen(scale, elements)).all()


def test_a_number_beyond_float16_is_refused_with_its_value_and_the_limit() -> None:
    with pytest.raises(FednodeError, match=r"^x holds 7e\+04, and float16 ends at 65504; set"):
        narrow("x", np.array([7e4, np.inf], dtype=np.float32), "float16")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_int8_carries_finite_numbers_only(value: float) -> None:
    with pytest.raises(FednodeError, match="x holds a number that is not finite"):
        narrow("x", np.array([value], dtype=np.float32), "int8")
