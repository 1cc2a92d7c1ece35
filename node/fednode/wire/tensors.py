"""Arrays as the bytes of a safetensors file, and back; no byte that comes in is trusted.

    length of the header (8 bytes) | header (JSON) | the numbers of all arrays, without gaps

The header holds for each array {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}. All
arrays of a message have one dtype, F32, F16 or I8, and the order of their names. For int8 the first
array is ".scale", in F32: one factor for each other array.

The header's length is checked before JSON is read, and all entries are compared with the numbers
before an array is made. Every fault is a FrameError. Numbers that are not finite pass: the kernel's
gate refuses them and counts them against the sender.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fednode.core.merge.numbers import ITEM_BYTES, SCALE_MAX, narrow, widen
from fednode.core.types import DTYPES, Dtype, Tensors
from fednode.errors import FednodeError, FrameError

LENGTH_BYTES: Final = 8
SCALES: Final = ".scale"
"""The name of the factors of int8; no array of a policy has it."""
SCALE_BYTES: Final = 4
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}", re.ASCII)
# Little-endian on every machine, whatever the machine's own byte order.
_ELEMENTS: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I8": np.dtype("i1"),
}
_KINDS: Final = dict(zip(_ELEMENTS.values(), _ELEMENTS, strict=True))
_DTYPES: Final[dict[str, Dtype]] = {"F32": "float32", "F16": "float16", "I8": "int8"}


HEADER_BYTES_MAX: Final = 128 << 10
TENSOR_BYTES_MAX: Final = 64 << 20
"""Of all arrays of a message in float32."""
ARRAYS_MAX: Final = 256
DIMENSIONS_MAX: Final = 8


def pack(tensors: Tensors, dtype: Dtype) -> list[bytes | memoryview]:
    """Return the file of all arrays in pieces; [] if there are no arrays.

    The pieces are views of the arrays where the dtype allows it, so nothing is copied here. Raise
    FednodeError if a number does not fit the dtype, or if the receiver would refuse the arrays.
    """
    if dtype not in DTYPES:
        raise FednodeError(f"wire dtype {dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    if len(tensors) > ARRAYS_MAX:
        raise FednodeError(f"{len(tensors)} arrays in a message; at most {ARRAYS_MAX} fit")
    if tensors.nbytes > TENSOR_BYTES_MAX:
        raise FednodeError(
            f"arrays of {tensors.nbytes:,} bytes in a message; at most {TENSOR_BYTES_MAX:,} fit"
        )
    elements: dict[str, npt.NDArray[Any]] = {}
    scales = []
    for name, array in tensors.items():
        if not _NAME.fullmatch(name):
            raise FednodeError(f"an array cannot travel under the name {name[:40]!r}")
        if array.ndim > DIMENSIONS_MAX:
            raise FednodeError(f"{name} has {array.ndim} axes; at most {DIMENSIONS_MAX} travel")
        scale, elements[name] = narrow(name, array, dtype)
        scales.append(scale)
    if not elements:
        return []
    if dtype == "int8":
        elements = {SCALES: np.array(scales, "<f4"), **elements}
    header: dict[str, Any] = {}
    end = 0
    for name, array in elements.items():
        begin, end = end, end + array.nbytes
        kind = _KINDS[array.dtype]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    block = [array.reshape(-1).view(np.uint8).data for array in elements.values()]
    return [len(text).to_bytes(LENGTH_BYTES, "little"), text, *block]


def unpack(data: bytes | memoryview, classes: Sequence[str] = ()) -> tuple[Tensors, Dtype | None]:
    """Return the tensors that `pack` wrote and their dtype (None if there are no arrays).

    classes: of the arrays' rows. Raise FrameError for anything else.
    """
    if not data:
        return Tensors(classes=classes), None
    elements = _elements(memoryview(data))
    scales = elements.pop(SCALES, None)
    kinds = {_KINDS[array.dtype] for array in elements.values()}
    if len(kinds) != 1:
        raise FrameError(f"arrays of {len(kinds)} dtypes in a message; all must have one")
    dtype = _DTYPES[kinds.pop()]
    if (dtype == "int8") != (scales is not None):
        raise FrameError(f"arrays in {dtype} {'without' if scales is None else 'with'} scales")
    factors = [0.0] * len(elements) if scales is None else scales.tolist()
    if not all(0.0 <= factor <= SCALE_MAX for factor in factors):
        raise FrameError(f"a scale is not a number between 0 and {SCALE_MAX:.3g}")
    pairs = zip(factors, elements.items(), strict=True)
    return Tensors.taking({name: widen(scale, one) for scale, (name, one) in pairs}, classes), dtype


def payload_bytes(tensors: Tensors, dtype: Dtype) -> int:
    """Return the bytes of the numbers alone as they are sent: elements, and scales for int8."""
    scale = SCALE_BYTES if dtype == "int8" else 0
    return sum(array.size * ITEM_BYTES[dtype] + scale for array in tensors.values())


def _elements(data: memoryview) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file as views of its bytes."""
    size = int.from_bytes(data[:LENGTH_BYTES], "little")
    most = min(HEADER_BYTES_MAX, len(data) - LENGTH_BYTES)
    if size > most:
        raise FrameError(f"the header of the arrays has {size:,} bytes; at most {most:,} fit")
    try:
        header = json.loads(bytes(data[LENGTH_BYTES : LENGTH_BYTES + size]))
    except (ValueError, RecursionError) as fault:
        raise FrameError("the header of the arrays is not JSON") from fault
    if not isinstance(header, dict) or len(header) > ARRAYS_MAX + 1:
        raise FrameError(f"the header of the arrays does not name at most {ARRAYS_MAX} arrays")
    block = data[LENGTH_BYTES + size :]
    elements: dict[str, npt.NDArray[Any]] = {}
    end, last, left = 0, "", TENSOR_BYTES_MAX
    for name, entry in header.items():
        if name != SCALES and not _NAME.fullmatch(name):
            raise FrameError(f"the array name {name[:40]!r} is not valid")
        if name <= last:
            raise FrameError(f"the array {name} follows {last}; names must be sorted and differ")
        kind, shape, place = _entry(name, entry)
        if name != SCALES:
            # An axis of length 0 empties the array; numpy must be able to take the other lengths.
            left -= 4 * math.prod(max(length, 1) for length in shape)
        elif (kind, shape) != ("F32", [len(header) - 1]):
            raise FrameError(f"scales in {kind} of the shape {str(shape)[:40]} for other arrays")
        if left < 0:
            raise FrameError(f"arrays of more than {TENSOR_BYTES_MAX:,} bytes in float32")
        begin, end, last = end, end + math.prod(shape) * _ELEMENTS[kind].itemsize, name
        if place != [begin, end] or end > len(block):
            raise FrameError(
                f"the array {name} of {end - begin:,} bytes does not lie at byte {begin:,} of the "
                f"{len(block):,} bytes of numbers; arrays must neither overlap nor leave gaps"
            )
        elements[name] = np.frombuffer(block[begin:end], _ELEMENTS[kind]).reshape(shape)
    if end != len(block):
        raise FrameError(f"the arrays end at byte {end:,} of {len(block):,} bytes of numbers")
    return elements


def _entry(name: str, entry: object) -> tuple[str, list[int], list[int]]:
    """Return the dtype, the shape and the offsets of an array."""
    match entry:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": list(place)} if (
            kind in _ELEMENTS and all(type(length) is int and length >= 0 for length in shape)
        ):
            if len(shape) > DIMENSIONS_MAX:
                raise FrameError(f"{name} has {len(shape)} axes; at most {DIMENSIONS_MAX} fit")
            return kind, shape, place
    kinds = ", ".join(_ELEMENTS)
    raise FrameError(f"the array {name} has no dtype of {kinds}, shape and data_offsets")
