"""Convert named arrays to and from msgpack: float32, float16, or int8 with one scale per array.

The bytes come from the network, so nothing is built before its size is known. Containers are read
by their headers, scalars only after a check of their first byte. An array is allocated after its
shape was compared with the bytes that are there. Every fault is a FrameError. Numbers that are not
finite
pass: the kernel's gate refuses them and counts them against the sender.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgpack
import numpy as np

from fednode.core.merge.numbers import SCALE_MAX, narrow, roundtrip, widen
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

Scalar = TypeVar("Scalar", str, memoryview, int, float)
Piece = bytes | memoryview

SCALE_BYTES: Final = 4
TEXT_BYTES_MAX: Final = 1024
PACKER_BYTES: Final = 1024
"""Room of a packer at first; it grows for longer texts."""
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}", re.ASCII)
# Little-endian on every machine, whatever the machine's own byte order.
_ELEMENT: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}
# First bytes of msgpack's scalars, by https://github.com/msgpack/msgpack/blob/master/spec.md
_CONSTANTS: Final[Mapping[int, bool | None]] = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {
    first: struct.Struct(f">{letter}") for first, letter in enumerate("fdBHIQbhiq", 0xCA)
}
# How many bytes the length takes.
_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_TEXTS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_NOTHING: Final = object()


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


LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class _Packed:
    """One array as it is sent. scale: for int8 only."""

    dtype: Dtype
    shape: tuple[int, ...]
    data: memoryview
    scale: float = 0.0


def pack(tensors: Tensors, dtype: Dtype, limits: Limits = LIMITS) -> bytes:
    """Return the msgpack of all arrays; b"" if there are none.

    Raise FednodeError if a number does not fit the dtype, or if the receiver would refuse the
    arrays.
    """
    return b"".join(pieces(tensors, dtype, limits))


def pieces(tensors: Tensors, dtype: Dtype, limits: Limits = LIMITS) -> list[Piece]:
    """Return what `pack` returns in pieces, so that the numbers are not copied here."""
    if dtype not in DTYPES:
        raise FednodeError(f"wire dtype {dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    if not tensors:
        return []
    if len(tensors) > limits.arrays:
        raise FednodeError(f"{len(tensors)} arrays in a message; at most {limits.arrays} fit")
    if tensors.nbytes > limits.tensor_bytes:
        raise FednodeError(
            f"arrays of {tensors.nbytes:,} bytes in a message; at most {limits.tensor_bytes:,} fit"
        )
    # float32 holds every scale exactly, so the short form of msgpack's floats loses nothing.
    packer = msgpack.Packer(use_single_float=True, buf_size=PACKER_BYTES)
    found: list[Piece] = [packer.pack_map_header(len(tensors))]
    for name, array in tensors.items():
        if not NAME.fullmatch(name):
            raise FednodeError(f"an array cannot travel under the name {name[:40]!r}")
        if array.ndim > limits.dimensions:
            raise FednodeError(f"{name} has {array.ndim} axes; at most {limits.dimensions} travel")
        scale, elements = narrow(name, array, dtype)
        numbers = elements.reshape(-1).view(np.uint8).data
        found += (
            packer.pack(name) + packer.pack_map_header(4 if dtype == "int8" else 3),
            packer.pack("d") + packer.pack(dtype) + packer.pack("s") + packer.pack(array.shape),
            packer.pack("b") + _bytes_header(len(numbers)),
            numbers,
        )
        if dtype == "int8":
            found.append(packer.pack("q") + packer.pack(scale))
    return found


def unpack(data: bytes | memoryview, limits: Limits = LIMITS) -> tuple[Tensors, Dtype | None]:
    """Return the tensors that `pack` wrote and their dtype (None if there are no arrays).

    Raise FrameError for anything else, including arrays of several dtypes.
    """
    if not data:
        return Tensors(), None
    reader = _Reader(data)
    arrays: dict[str, Array] = {}
    dtype: Dtype | None = None
    left = limits.tensor_bytes
    for _ in range(reader.map(limits.arrays, "arrays")):
        name = reader.text("an array's name")
        if not NAME.fullmatch(name) or name in arrays:
            raise FrameError(f"the array name {name[:40]!r} is not valid or occurs twice")
        packed = _read_array(reader, name, limits)
        # An axis of length 0 empties the array; numpy must still be able to take the other lengths.
        left -= 4 * math.prod(max(length, 1) for length in packed.shape)
        if left < 0:
            raise FrameError(
                f"arrays of more than {limits.tensor_bytes:,} bytes in float32; "
                f"that is the limit of a message"
            )
        if dtype not in {None, packed.dtype}:
            raise FrameError(f"{name} is {packed.dtype} in a message of {dtype} arrays")
        dtype = packed.dtype
        arrays[name] = _unpack_array(name, packed)
    reader.end()
    return Tensors.taking(arrays), dtype


def payload_bytes(tensors: Tensors, dtype: Dtype) -> int:
    """Return the bytes of the numbers alone as they are sent: elements, and scales for int8."""
    scale = SCALE_BYTES if dtype == "int8" else 0
    return sum(array.size * _ELEMENT[dtype].itemsize + scale for array in tensors.values())


def _bytes_header(length: int) -> bytes:
    """Return what msgpack writes ahead of so many bytes."""
    at = (length > 0xFF) + (length > 0xFFFF)
    return bytes([0xC4 + at]) + length.to_bytes(1 << at, "big")


def _unpack_array(name: str, packed: _Packed) -> Array:
    """Return the float32 array; raise FrameError if its bytes do not fit its shape."""
    element = _ELEMENT[packed.dtype]
    count = math.prod(packed.shape)
    if count * element.itemsize != len(packed.data):
        raise FrameError(
            f"{name} has {len(packed.data)} bytes, but {list(packed.shape)} in {packed.dtype} "
            f"takes {count * element.itemsize}"
        )
    flat = np.frombuffer(packed.data, dtype=element) if count else np.zeros(0, dtype=element)
    return widen(packed.scale, flat).reshape(packed.shape)


def _read_array(reader: _Reader, name: str, limits: Limits) -> _Packed:
    """Return one array's entry: exactly d, s and b, and q for int8."""
    fields: dict[str, Any] = {}
    for _ in range(reader.map(4, f"fields of {name}")):
        key = reader.text(f"a field of {name}")
        if key in fields:
            raise FrameError(f"the field {key!r} of {name} occurs twice")
        if key == "s":
            fields[key] = tuple(
                reader.whole(f"a length of {name}")
                for _ in range(reader.array(limits.dimensions, f"axes of {name}"))
            )
        elif key == "d":
            fields[key] = reader.text(f"the dtype of {name}")
        elif key == "b":
            fields[key] = reader.raw(f"the bytes of {name}")
        elif key == "q":
            fields[key] = reader.real(f"the scale of {name}")
        else:
            raise FrameError(f"the field {key[:40]!r} of {name} is unknown")
    dtype = fields.get("d")
    if dtype not in DTYPES:
        raise FrameError(f"the dtype of {name} is not one of {', '.join(DTYPES)}")
    wanted = {"d", "s", "b", "q"} if dtype == "int8" else {"d", "s", "b"}
    if fields.keys() != wanted:
        raise FrameError(f"{name} has the fields {sorted(fields)}, not {sorted(wanted)}")
    scale = fields.get("q", 0.0)
    if not 0.0 <= scale <= SCALE_MAX:
        raise FrameError(f"the scale of {name} is {scale}, not between 0 and {SCALE_MAX:.3g}")
    return _Packed(dtype, fields["s"], fields["b"], scale)


class _Reader:
    """Read msgpack piece by piece, so that hostile nesting or lengths cost no memory.

    Only what `pack` may write is read: texts, bytes, numbers, and the headers of maps and lists.
    Bytes are not copied: they are a view of the data.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    def map(self, most: int, what: str) -> int:
        """Read the header of a map; return how many pairs follow."""
        return self._header(0x80, 0xDE, most, what)

    def array(self, most: int, what: str) -> int:
        """Read the header of a list; return how many items follow."""
        return self._header(0x90, 0xDC, most, what)

    def text(self, what: str) -> str:
        """Read a string."""
        return self._scalar(str, what)

    def raw(self, what: str) -> memoryview:
        """Read bytes."""
        return self._scalar(memoryview, what)

    def real(self, what: str) -> float:
        """Read a floating-point number."""
        return self._scalar(float, what)

    def whole(self, what: str) -> int:
        """Read a whole number that is not negative."""
        value = self._scalar(int, what)
        if isinstance(value, bool) or value < 0:
            raise FrameError(f"{what} is {value}, not a whole number from 0")
        return value

    def end(self) -> None:
        """Raise FrameError if bytes are left over."""
        if self._at != len(self._data):
            raise FrameError("bytes follow the last array")

    def _header(self, short: int, long: int, most: int, what: str) -> int:
        """Read a header: `short` and the count in one byte, or `long` and two or four bytes."""
        first = self._byte()
        if first & 0xF0 == short:
            count = first & 0x0F
        elif first - long in {0, 1}:
            count = int.from_bytes(self._take(2 << (first - long), f"one of the {what}"), "big")
        else:
            raise FrameError(f"the {what} are cut short or not msgpack")
        if count > most:
            raise FrameError(f"{count} {what}; at most {most} are taken")
        return count

    def _scalar(self, kind: type[Scalar], what: str) -> Scalar:
        value = self._value(what)
        if isinstance(value, kind):
            return value
        if value is _NOTHING:
            raise FrameError(f"{what} is missing or not a {_named(kind)}")
        raise FrameError(f"{what} is a {_named(type(value))}, not a {_named(kind)}")

    def _value(self, what: str) -> object:
        """Read any scalar; return _NOTHING if there is none."""
        first = self._byte()
        if first & 0xE0 == 0xA0:
            return self._text(first & 0x1F, what)
        if 0 <= first < 0x80 or first >= 0xE0:  # small whole numbers
            return first if first < 0x80 else first - 0x100
        if first in _TEXTS:
            return self._text(self._length(_TEXTS[first], what), what)
        if first in _BYTES:
            return self._take(self._length(_BYTES[first], what), what)
        if first in _NUMBERS:
            form = _NUMBERS[first]
            return form.unpack(self._take(form.size, what))[0]
        return _CONSTANTS.get(first, _NOTHING)

    def _text(self, length: int, what: str) -> str:
        if length > TEXT_BYTES_MAX:
            raise FrameError(f"{what} has {length:,} bytes; at most {TEXT_BYTES_MAX:,} are taken")
        try:
            return str(self._take(length, what), "utf-8")
        except UnicodeDecodeError as fault:
            raise FrameError(f"{what} is not UTF-8") from fault

    def _length(self, size: int, what: str) -> int:
        return int.from_bytes(self._take(size, what), "big")

    def _byte(self) -> int:
        """Return the next byte; -1 at the end."""
        if self._at >= len(self._data):
            return -1
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, count: int, what: str) -> memoryview:
        """Return the next bytes, without a copy; raise FrameError if there are fewer."""
        end = self._at + count
        if end > len(self._data):
            raise FrameError(f"{what} is cut short")
        found = self._data[self._at : end]
        self._at = end
        return found


def _named(kind: type) -> str:
    return "bytes" if kind is memoryview else kind.__name__
