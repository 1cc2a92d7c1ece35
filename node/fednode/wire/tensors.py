"""Convert named arrays to a packed table and one block of bytes, and back.

The block holds the numbers of all arrays, one array after the other in the order of their names,
without gaps: little-endian float32, float16 or int8. The table says how to read the block. msgpack
packs it:

    [dtype, [[name, offset, shape], ...]]    for int8: [name, offset, shape, scale]

offset: where an array begins in the block, in bytes. All arrays of a message have one dtype, so
each offset is a multiple of the dtype's size and no padding is needed. The block itself may begin
at any address: a receiver makes float32 arrays of its own, which are aligned.

The bytes come from the network. The table's length is checked before msgpack reads it, msgpack
checks the lengths inside, and an array is made after its shape and offset were compared with the
block. Every fault is a FrameError. Numbers that are not finite pass: the kernel's gate refuses them
and counts them against the sender.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np

from fednode.core.merge.numbers import ITEM_BYTES, SCALE_MAX, narrow, roundtrip, widen
from fednode.core.types import DTYPES, Array, Dtype, Tensors
from fednode.errors import FednodeError, FrameError

__all__ = [
    "DTYPES",
    "LIMITS",
    "Dtype",
    "Limits",
    "pack",
    "payload_bytes",
    "roundtrip",
    "unpack",
]

SCALE_BYTES: Final = 4
NAME_CHARACTERS_MAX: Final = 128
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}", re.ASCII)
ENTRY_BYTES: Final = 64
"""Room in a table for the offset, the scale and the headers of one array; for the dtype, too."""
LENGTH_BYTES: Final = 9
"""Most bytes that msgpack takes for one length of a shape."""
# Little-endian on every machine, whatever the machine's own byte order.
_ELEMENT: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a receiver. frame_bytes: a whole frame; tensor_bytes: all arrays in float32."""

    frame_bytes: int = 64 << 20
    tensor_bytes: int = 64 << 20
    arrays: int = 256
    dimensions: int = 8
    facts: int = 64
    members: int = 1026
    fact_characters: int = 1024
    classes: int = 4096

    @property
    def table_bytes(self) -> int:
        """Return the bytes of the largest table of arrays that these limits allow."""
        entry = NAME_CHARACTERS_MAX + LENGTH_BYTES * self.dimensions + ENTRY_BYTES
        return self.arrays * entry + ENTRY_BYTES


LIMITS: Final = Limits()


def pack(
    tensors: Tensors, dtype: Dtype, limits: Limits = LIMITS
) -> tuple[bytes, tuple[memoryview, ...]]:
    """Return the table of all arrays, and the block in pieces; b"" and () if there are no arrays.

    The pieces are views of the arrays where the dtype allows it, so nothing is copied here. Raise
    FednodeError if a number does not fit the dtype, or if the receiver would refuse the arrays.
    """
    if dtype not in DTYPES:
        raise FednodeError(f"wire dtype {dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    if not tensors:
        return b"", ()
    if len(tensors) > limits.arrays:
        raise FednodeError(f"{len(tensors)} arrays in a message; at most {limits.arrays} fit")
    if tensors.nbytes > limits.tensor_bytes:
        raise FednodeError(
            f"arrays of {tensors.nbytes:,} bytes in a message; at most {limits.tensor_bytes:,} fit"
        )
    entries: list[tuple[Any, ...]] = []
    block: list[memoryview] = []
    offset = 0
    for name, array in tensors.items():
        if not NAME.fullmatch(name):
            raise FednodeError(f"an array cannot travel under the name {name[:40]!r}")
        if array.ndim > limits.dimensions:
            raise FednodeError(f"{name} has {array.ndim} axes; at most {limits.dimensions} travel")
        scale, elements = narrow(name, array, dtype)
        entries.append((name, offset, array.shape, *((scale,) if dtype == "int8" else ())))
        block.append(elements.reshape(-1).view(np.uint8).data)
        offset += elements.nbytes
    # float32 holds every scale exactly, so the short form of msgpack's floats loses nothing.
    return msgpack.packb((dtype, entries), use_single_float=True), tuple(block)


def unpack(
    table: bytes,
    block: bytes | memoryview,
    limits: Limits = LIMITS,
    classes: Sequence[str] = (),
) -> tuple[Tensors, Dtype | None]:
    """Return the tensors that `pack` wrote and their dtype (None if there are no arrays).

    classes: of the arrays' rows. Raise FrameError for anything else.
    """
    if not table and not block:
        return Tensors(classes=classes), None
    dtype, entries = _read(table, limits)
    arrays: dict[str, Array] = {}
    end, last, left = 0, "", limits.tensor_bytes
    for entry in entries:
        name, offset, shape, scale = _entry(entry, dtype, limits)
        if name <= last:
            raise FrameError(f"the array {name} follows {last}; names must be sorted and differ")
        # An axis of length 0 empties the array; numpy must still be able to take the other lengths.
        left -= 4 * math.prod(max(length, 1) for length in shape)
        if left < 0:
            raise FrameError(
                f"arrays of more than {limits.tensor_bytes:,} bytes in float32; "
                f"that is the limit of a message"
            )
        begin, end = end, end + math.prod(shape) * ITEM_BYTES[dtype]
        if offset != begin:
            raise FrameError(
                f"the array {name} has the offset {offset}, but the arrays before it end at "
                f"{begin}; arrays must neither overlap nor leave gaps"
            )
        if end > len(block):
            raise FrameError(
                f"{name} with the shape {list(shape)} in {dtype} ends at byte {end:,}, but the "
                f"block has {len(block):,} bytes"
            )
        elements = np.frombuffer(block[begin:end], dtype=_ELEMENT[dtype])
        arrays[name] = widen(scale, elements).reshape(shape)
        last = name
    if end != len(block):
        raise FrameError(f"the arrays end at byte {end:,}, but the block has {len(block):,} bytes")
    return Tensors.taking(arrays, classes), dtype


def payload_bytes(tensors: Tensors, dtype: Dtype) -> int:
    """Return the bytes of the numbers alone as they are sent: elements, and scales for int8."""
    scale = SCALE_BYTES if dtype == "int8" else 0
    return sum(array.size * _ELEMENT[dtype].itemsize + scale for array in tensors.values())


def _read(table: bytes, limits: Limits) -> tuple[Dtype, tuple[object, ...]]:
    """Return the dtype and the entries of a packed table."""
    if len(table) > limits.table_bytes:
        raise FrameError(
            f"a table of arrays of {len(table):,} bytes; at most {limits.table_bytes:,} fit"
        )
    try:
        unpacked = msgpack.unpackb(
            table,
            use_list=False,
            max_str_len=NAME_CHARACTERS_MAX,
            max_bin_len=0,
            max_array_len=max(limits.arrays, limits.dimensions, 4),
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as fault:
        why = str(fault) or type(fault).__name__
        raise FrameError(f"the table of arrays is not what msgpack packs: {why[:200]}") from fault
    match unpacked:
        case (str(dtype), tuple(entries)) if dtype in DTYPES:
            return dtype, entries
        case (dtype, tuple()):
            kinds = ", ".join(DTYPES)
            raise FrameError(f"the dtype of the arrays is {_shown(dtype)}, not one of {kinds}")
    raise FrameError(f"the table of arrays is {_shown(unpacked)}, not a dtype and a list of arrays")


def _entry(entry: object, dtype: Dtype, limits: Limits) -> tuple[str, int, tuple[int, ...], float]:
    """Return the name, offset, shape and scale of one array; the scale is 0 unless for int8."""
    fields = ("name", "offset", "shape", "scale")[: 4 if dtype == "int8" else 3]
    if not isinstance(entry, tuple) or len(entry) != len(fields):
        raise FrameError(f"an array in {dtype} is {_shown(entry)}, not {', '.join(fields)}")
    name, offset, shape, *scales = entry
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise FrameError(f"the array name {_shown(name)} is not valid")
    if not _whole(offset):
        raise FrameError(f"the offset of {name} is {_shown(offset)}, not a whole number from 0")
    if not isinstance(shape, tuple) or not all(map(_whole, shape)):
        raise FrameError(f"the shape of {name} is {_shown(shape)}, not whole numbers from 0")
    if len(shape) > limits.dimensions:
        raise FrameError(f"{name} has {len(shape)} axes; at most {limits.dimensions} are taken")
    scale = scales[0] if scales else 0.0
    if not isinstance(scale, float) or not 0.0 <= scale <= SCALE_MAX:
        raise FrameError(
            f"the scale of {name} is {_shown(scale)}, not a fraction between 0 and {SCALE_MAX:.3g}"
        )
    return name, offset, shape, scale


def _whole(value: object) -> bool:
    """Tell whether a value is a whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: object) -> str:
    """Return a value as a sentence shows it: bounded, whatever a hostile node packed."""
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    if isinstance(value, str | bytes):
        return repr(value[:40])
    return repr(value)[:40]
