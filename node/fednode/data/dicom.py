"""Decode DICOM files, which takes the extra `dicom` (pydicom).

Grey values pass the modality transformation (rescale or its table), then the window: `data.window`,
or the file's table or window tags, or percentiles without the padding. MONOCHROME1 is inverted.
Colours are taken as stored. Of several frames the middle one is taken, with its own tags in an
enhanced file.

Source: DICOM PS3.3, C.11.1 (modality), C.11.2 (values of interest), C.7.6.3 (pixels), C.7.6.16
(functional groups).
"""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from fednode.data.budget import SHARED, with_head
from fednode.data.pixels import (
    Decoded,
    Pieces,
    Unusable,
    Values,
    Window,
    grey,
    require_room,
    shades,
    spans,
)

EXTRA: Final = "pip install 'fednode[dicom]'"
GREY: Final = ("MONOCHROME1", "MONOCHROME2")
PALETTE: Final = "PALETTE COLOR"
PREAMBLE_BYTES: Final = 128
MAGIC: Final = b"DICM"
START_BYTES: Final = PREAMBLE_BYTES + len(MAGIC)
SYNTAX: Final = 0x00020010
COLOURS: Final = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


def installed() -> bool:
    """Tell whether DICOM files can be read here."""
    return importlib.util.find_spec("pydicom") is not None


def begins(start: bytes) -> bool:
    """Tell whether the first START_BYTES of a file are those of DICOM.

    Old files have no preamble: they begin with an element of group 2 or 8, whose kind is two
    capital letters, or not written, before a length.
    """
    if start[PREAMBLE_BYTES:] == MAGIC:
        return True
    kind, length = start[4:6], int.from_bytes(start[4:8], "little")
    written = kind.isalpha() and kind.isupper()
    return start[:2] in {b"\2\0", b"\x08\0"} and len(start) > 8 and (written or 0 < length < 128)


def decode(file: io.BufferedReader, held: ExitStack, side: int | None, window: Window) -> Decoded:
    """Return the middle frame of a DICOM file in RGB.

    held: gets what is to be given back. `side` changes nothing here. Raise Unusable if the
    file holds no picture that can be decoded here, or pydicom's error if it is damaged, which may
    be of any type.
    """
    if not installed():
        raise Unusable(f"a DICOM file, which takes an extra: run `{EXTRA}`")
    from pydicom import config
    from pydicom.pixels import pixel_array

    config.settings.reading_validation_mode = config.IGNORE  # values that are not used may be odd
    header, syntax = with_head(file, lambda: _header(file))
    size, kind = (int(header.Columns), int(header.Rows)), str(header.PhotometricInterpretation)
    frames = int(header.get("NumberOfFrames") or 1)
    middle = (frames - 1) // 2
    shown = f"a DICOM image of {size[0]:,} x {size[1]:,} pixels"
    held.enter_context(SHARED.taken(_peak(header, kind), shown))
    file.seek(0)
    # The pixels are freed once their shades or colours are made.
    pixels = pixel_array(file, index=middle, force=True, transfer_syntax_uid=syntax)
    made = _made(pixels, header, middle, window)
    patient = str(header.get("PatientID") or "").strip()
    return Decoded(Image.fromarray(made).convert("RGB"), frames, patient)


def _made(pixels: Values, header: Any, frame: int, window: Window) -> npt.NDArray[np.uint8]:
    """Return a frame's stored values as shades [H, W] or as RGB [H, W, 3]."""
    kind = str(header.PhotometricInterpretation)
    if kind in GREY:
        made = _windowed(pixels, header, frame, window)
        if kind == "MONOCHROME1":
            np.subtract(255, made, out=made)
        return made
    if kind == PALETTE:
        from pydicom.pixels import apply_color_lut

        bits = int(header.RedPaletteColorLookupTableDescriptor[2])
        return _eight_bits(lambda: (apply_color_lut(row, header) for row in _rows(pixels)), bits)
    return _eight_bits(lambda: _rows(pixels), int(header.BitsStored))


def _peak(header: Any, kind: str) -> int:
    """Return the most bytes that decoding a frame holds at a time."""
    pixels = int(header.Columns) * int(header.Rows)
    samples = int(header.get("SamplesPerPixel") or 1)
    stored = samples * max(int(header.get("BitsAllocated") or 8), 8) // 8
    if kind.startswith("YBR"):
        return pixels * 40  # pydicom's change of colours computes in float32
    return pixels * max(2 * stored, stored + samples, 4 + min(samples, 3))


def _rows(pixels: Values) -> Iterator[Values]:
    """Yield an image [H, W, ...] from above to below, in pieces of few pixels."""
    for top, bottom in spans(*pixels.shape[:2]):
        yield pixels[top:bottom]


def _header(file: io.BufferedReader) -> tuple[Any, Any]:
    """Return the data set without its pixels, and their transfer syntax.

    Raise Unusable if the pixels cannot be decoded.
    """
    from pydicom import dcmread
    from pydicom.pixels import get_decoder

    syntax = _syntax(file)
    if syntax is not None and syntax.is_deflated:
        raise Unusable(f"a DICOM file compressed as {syntax.name}: decompress it")
    header = dcmread(file, stop_before_pixels=True, force=True)
    missing = [
        name for name in ("Rows", "Columns", "PhotometricInterpretation") if name not in header
    ]
    if missing:
        raise Unusable(f"a DICOM file without a picture (it has no {missing[0]})")
    left = os.fstat(file.fileno()).st_size - file.tell()
    if not left:
        raise Unusable("a DICOM file without a picture (it has no pixels, or is cut off)")
    require_room(int(header.Columns), int(header.Rows))
    kind = str(header.PhotometricInterpretation)
    if kind not in (*GREY, PALETTE, *COLOURS):
        raise Unusable(f"DICOM's photometric interpretation {kind} is not supported")
    syntax = syntax or _plain(header)
    if not syntax.is_compressed:
        if left < _stored(header):
            raise Unusable("a DICOM file that is cut off: copy it again")
        return header, syntax
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise Unusable(
            f"a DICOM file compressed as {syntax.name}, which is not supported"
        ) from None
    if not decoder.is_available:
        wanted = "; ".join(decoder.missing_dependencies)
        raise Unusable(
            f"a DICOM file compressed as {syntax.name}: decompress it, or install a decoder "
            f"({wanted})"
        )
    return header, syntax


def _plain(header: Any) -> Any:
    """Return the transfer syntax of a file that names none, as it was found to be written."""
    from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

    implicit, little = header.original_encoding
    if implicit:
        return ImplicitVRLittleEndian
    return ExplicitVRLittleEndian if little else ExplicitVRBigEndian


def _stored(header: Any) -> int:
    """Return the least bytes of all frames without compression."""
    pixels = int(header.Columns) * int(header.Rows) * int(header.get("NumberOfFrames") or 1)
    samples = int(header.get("SamplesPerPixel") or 1)
    if str(header.PhotometricInterpretation) == "YBR_FULL_422":
        samples = 2
    return pixels * samples * int(header.get("BitsAllocated") or 8) // 8


def _syntax(file: io.BufferedReader) -> Any:
    """Return the transfer syntax; None if the file names none. The file is left at its begin.

    pydicom's own reader inflates a deflated data set before it can be asked for the syntax.
    """
    from pydicom.filereader import data_element_generator
    from pydicom.uid import UID

    syntax = None
    if file.read(PREAMBLE_BYTES + len(MAGIC))[PREAMBLE_BYTES:] == MAGIC:
        for element in data_element_generator(
            file, False, True, stop_when=lambda tag, _, __: tag.group != 2
        ):
            if element.tag == SYNTAX:
                value = (
                    element.value.decode("ascii")
                    if isinstance(element.value, bytes)
                    else element.value
                )
                syntax = UID(str(value).strip("\0 "))
    file.seek(0)
    return syntax


def _holder(header: Any, frame: int, group: str, keyword: str) -> Any:
    """Return the data set that holds a keyword: the frame's group, the shared group, or the file's.

    Return an empty data set if there is none.
    """
    from pydicom import Dataset

    each = header.get("PerFrameFunctionalGroupsSequence") or []
    own = list(each[frame : frame + 1])
    for item in (*own, *(header.get("SharedFunctionalGroupsSequence") or [])):
        inside = item.get(group) or []
        if inside and keyword in inside[0]:
            return inside[0]
    return header if keyword in header else Dataset()


def _windowed(pixels: Values, header: Any, frame: int, window: Window) -> npt.NDArray[np.uint8]:
    """Return shades 0 to 255 of a frame's stored values, before MONOCHROME1 is inverted."""
    from pydicom.pixels import apply_modality_lut, apply_voi

    rescale = _holder(header, frame, "PixelValueTransformationSequence", "RescaleSlope")
    table = header if header.get("ModalityLUTSequence") else rescale

    def values() -> Iterator[Values]:
        return (apply_modality_lut(row, table) for row in _rows(pixels))

    def shown(
        window: Window, pieces: Pieces = values, known: Pieces | None = None
    ) -> npt.NDArray[np.uint8]:
        return grey(pieces, (pixels.shape[1], pixels.shape[0]), window, known)

    if window is not None:
        return shown(window)
    voi = header.get("VOILUTSequence")
    if voi:
        bits = int(voi[0].LUTDescriptor[2])

        def looked_up() -> Iterator[Values]:
            return (apply_voi(np.rint(piece).astype(np.int64), header) for piece in values())

        return shown((0.0, float(2**bits - 1)), looked_up)
    tags = _holder(header, frame, "FrameVOILUTSequence", "WindowWidth")
    width = _first(tags.get("WindowWidth"))
    if width is not None and width > 0.0:
        centre = _first(tags.get("WindowCenter")) or 0.0
        function = str(tags.get("VOILUTFunction") or "LINEAR")
        return np.concatenate([by_window(piece, centre, width, function) for piece in values()])
    same = zip(values(), _rows(pixels), strict=True)
    if pixels.dtype == np.uint8 and all(np.array_equal(piece, other) for piece, other in same):
        return shown((0.0, float(2 ** int(header.BitsStored) - 1)))
    return shown(None, known=_without_padding(pixels, values, header))


def by_window(values: Values, centre: float, width: float, function: str) -> npt.NDArray[np.uint8]:
    """Return values [H, W] as shades 0 to 255 by a window (PS3.3, C.11.2.1.2 and C.11.2.1.3).

    function: LINEAR, LINEAR_EXACT or SIGMOID.
    """
    if function == "SIGMOID":
        shares = 1.0 / (1.0 + np.exp(-4.0 * (values.astype(np.float64) - centre) / width))
        return shades(shares, (0.0, 1.0))
    if function == "LINEAR":
        centre, width = centre - 0.5, width - 1.0
    return shades(values, (centre - width / 2, centre + width / 2))


def _first(value: Any) -> float | None:
    """Return a number tag's first value; None if there is none."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return float(value) if value else None
    return float(value[0]) if len(value) else None


def _without_padding(pixels: Values, values: Pieces, header: Any) -> Pieces:
    """Return the values of all pixels but the padding; all values if nothing else is left."""
    low = header.get("PixelPaddingValue")
    if low is None:
        return values
    limit = header.get("PixelPaddingRangeLimit")
    ends = [_signed(value, header) for value in (low, low if limit is None else limit)]

    def kept() -> Iterator[Values]:
        for stored, piece in zip(_rows(pixels), values(), strict=True):
            yield piece[(stored < min(ends)) | (stored > max(ends))]

    return kept if any(piece.size for piece in kept()) else values


def _signed(value: Any, header: Any) -> int:
    """Return a stored value with the sign of the pixels, whatever its tag's kind is."""
    if isinstance(value, bytes):
        value = int.from_bytes(value, "little")
    size = 1 << int(header.get("BitsAllocated") or 16)
    held = int(value) % size
    return (
        held - size if int(header.get("PixelRepresentation") or 0) and held >= size // 2 else held
    )


def _eight_bits(pieces: Pieces, bits: int) -> npt.NDArray[np.uint8]:
    """Return colours [H, W, 3 or 4] of some bits as RGB of 8 bits."""
    share = 255 / (2**bits - 1)
    scaled = (np.rint(piece[..., :3].astype(np.float64) * share) for piece in pieces())
    return np.concatenate([piece.astype(np.uint8) for piece in scaled])
