"""Number formats on the wire: what a receiver sees of arrays sent in float32, float16 or int8.

A node merges its own contribution as its peers receive it, so that all nodes merge the same
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fednode.core.types import Array, Dtype, Tensors
from fednode.errors import FednodeError

ITEM_BYTES: Final[Mapping[str, int]] = {"float32": 4, "float16": 2, "int8": 1}
# 127 times the largest scale is still a float32.
SCALE_MAX: Final = float(np.nextafter(np.float32(np.finfo(np.float32).max / 127), np.float32(0)))
_FLOAT16_MAX: Final = float(np.finfo(np.float16).max)


def narrow(name: str, array: Array, dtype: Dtype) -> tuple[float, npt.NDArray[Any]]:
    """Return a scale (0 unless the dtype is int8) and the little-endian elements that are sent.

    Raise FednodeError if a number does not fit the dtype.
    """
    if dtype == "int8":
        return _quantise(name, array)
    if dtype == "float16":
        with np.errstate(over="ignore", invalid="ignore"):
            elements = array.astype("<f2")
        if bool((np.isinf(elements) & np.isfinite(array)).any()):
            largest = float(np.abs(array[np.isfinite(array)]).max())
            raise FednodeError(
                f"{name} holds {largest:.4g}, and float16 ends at {_FLOAT16_MAX:.0f}; "
                "set the policy's wire_dtype to float32"
            )
        return 0.0, elements
    return 0.0, array.astype("<f4", copy=False)


def widen(scale: float, elements: npt.NDArray[Any]) -> Array:
    """Return the float32 array of received elements; scale is used for int8 only."""
    # A signalling NaN from the network must not become a warning.
    with np.errstate(invalid="ignore"):
        array = elements.astype(np.float32)
    if elements.dtype == np.int8:
        array *= np.float32(scale)
    return array


def roundtrip(tensors: Tensors, dtype: Dtype) -> Tensors:
    """Return these tensors as a receiver will see them."""
    if dtype == "float32":
        return tensors
    arrays = {name: widen(*narrow(name, array, dtype)) for name, array in tensors.items()}
    return Tensors(arrays, tensors.classes)


def _quantise(name: str, array: Array) -> tuple[float, npt.NDArray[np.int8]]:
    """Return a scale and int8 numbers in [-127, 127] whose product is nearest to the array."""
    if not bool(np.isfinite(array).all()):
        raise FednodeError(f"{name} holds a number that is not finite, which int8 cannot carry")
    largest = float(np.abs(array).max(initial=0.0))
    scale = min(float(np.float32(largest / 127)), SCALE_MAX)
    if scale == 0.0:
        return 0.0, np.zeros(array.shape, dtype=np.int8)
    # In float64, so that a tiny scale does not overflow the quotient.
    quotient = np.rint(array.astype(np.float64) / scale)
    return scale, np.clip(quotient, -127, 127).astype(np.int8)
