"""Decode DICOM files, which takes the extra `dicom` (pydicom).

Grey values pass the modality transformation (rescale or its table), then the window: `data.window`,
or the file's table or window tags, or percentiles without the padding. MONOCHROME1 is inverted.
Colours are taken as stored. Of several frames the middle one is taken, with its own tags in an
enhanced file.

Source: DICOM PS3.3, C.11.1 (modality), C.11.2 (values of interest), C.7.6.3 (pixels), C.7.6.16
(functional groups).
"""

from __future__ import annotations

import errno
import importlib.util
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from fednode.data.files import opened
from fednode.data.pixels import (
    Shades,
    Unusable,
    Values,
    Window,
    by_rows,
    percentiles,
    require_room,
    sample,
    shades,
)

EXTRA: Final = "pip install 'fednode[dicom]'"
GREY: Final = ("MONOCHROME1", "MONOCHROME2")
PALETTE: Final = "PALETTE COLOR"
PREAMBLE_BYTES: Final = 128
NEEDED: Final = ("Rows", "Columns", "SamplesPerPixel", "BitsAllocated", "PhotometricInterpretation")
MAGIC: Final = b"DICM"
START_BYTES: Final = PREAMBLE_BYTES + len(MAGIC)
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


def has_magic(path: Path) -> bool:
    """Tell by its first bytes whether a file is DICOM; also if the system does not give it."""
    try:
        with opened(path) as file:
            return begins(file.read(START_BYTES))
    except Unusable:
        return False
    except OSError as fault:  # what is there is examined, and named with the system's reason
        return fault.errno not in {errno.ENOENT, errno.ELOOP}


def decode(file: io.BufferedReader, window: Window) -> tuple[Shades, int, str]:
    """Return the middle frame of a DICOM file, the number of frames, and the patient's PatientID.

    The frame is shades [H, W] or RGB [H, W, 3]. Raise Unusable if the file holds no picture that
    can be decoded here, or pydicom's error if it is damaged, which may be of any type.
    """
    if not installed():
        raise Unusable(f"a DICOM file, which takes an extra: run `{EXTRA}`")
    from pydicom import config
    from pydicom.pixels import apply_color_lut, pixel_array

    config.settings.reading_validation_mode = config.IGNORE  # values that are not used may be odd
    header, syntax = _header(file)
    frames = int(header.get("NumberOfFrames") or 1)
    middle = (frames - 1) // 2
    file.seek(0)
    pixels = pixel_array(file, index=middle, force=True, transfer_syntax_uid=syntax)
    kind = str(header.PhotometricInterpretation)
    if kind in GREY:
        made = _windowed(pixels, header, middle, window)
        if kind == "MONOCHROME1":
            np.subtract(255, made, out=made)
    elif kind == PALETTE:
        bits = int(header.RedPaletteColorLookupTableDescriptor[2])
        made = by_rows(lambda rows: _eight_bits(apply_color_lut(rows, header), bits), pixels)
    else:
        made = by_rows(lambda rows: _eight_bits(rows, int(header.BitsStored)), pixels)
    return made, frames, str(header.get("PatientID") or "").strip()


def _header(file: io.BufferedReader) -> tuple[Any, Any]:
    """Return the data set without its pixels, and their transfer syntax.

    Raise Unusable if the pixels cannot be decoded.
    """
    from pydicom import dcmread
    from pydicom.pixels import get_decoder
    from pydicom.pixels.utils import get_expected_length

    header = dcmread(file, stop_before_pixels=True, force=True)
    syntax = header.file_meta.get("TransferSyntaxUID") or _plain(header)
    if syntax.is_deflated:
        raise Unusable(f"a DICOM file compressed as {syntax.name}: decompress it")
    for name in NEEDED:
        if name not in header:
            raise Unusable(f"a DICOM file without a picture (it has no {name})")
    left = os.fstat(file.fileno()).st_size - file.tell()
    if not left:
        raise Unusable("a DICOM file without a picture (it has no pixels, or is cut off)")
    require_room(int(header.Columns), int(header.Rows))
    kind = str(header.PhotometricInterpretation)
    if kind not in (*GREY, PALETTE, *COLOURS):
        raise Unusable(f"DICOM's photometric interpretation {kind} is not supported")
    if not syntax.is_compressed:
        if left < get_expected_length(header):
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


def _holder(header: Any, frame: int, group: str, keyword: str) -> Any:
    """Return the data set with a keyword's value: the frame's group, the shared one, or the file's.

    Return an empty data set if there is none.
    """
    from pydicom import Dataset

    each = header.get("PerFrameFunctionalGroupsSequence") or []
    own = list(each[frame : frame + 1])
    for item in (*own, *(header.get("SharedFunctionalGroupsSequence") or [])):
        inside = item.get(group) or []
        if inside and inside[0].get(keyword) is not None:
            return inside[0]
    return header if header.get(keyword) is not None else Dataset()


def _windowed(pixels: Values, header: Any, frame: int, window: Window) -> Shades:
    """Return shades 0 to 255 of a frame's stored values, before MONOCHROME1 is inverted."""
    from pydicom import Dataset
    from pydicom.pixels import apply_modality_lut, apply_voi

    rescale = _holder(header, frame, "PixelValueTransformationSequence", "RescaleSlope")
    if rescale.get("RescaleIntercept") is None:  # then the stored values are meant
        rescale = Dataset()
    table = header if header.get("ModalityLUTSequence") else rescale

    def values(stored: Values) -> Values:
        return np.asarray(apply_modality_lut(stored, table))

    def looked_up(stored: Values) -> Values:
        return np.asarray(apply_voi(np.rint(values(stored)).astype(np.int64), header))

    if window is not None:
        return by_rows(lambda rows: shades(values(rows), window), pixels)
    if voi := header.get("VOILUTSequence"):
        whole = 0.0, float(2 ** int(voi[0].LUTDescriptor[2]) - 1)
        return by_rows(lambda rows: shades(looked_up(rows), whole), pixels)
    tags = _holder(header, frame, "FrameVOILUTSequence", "WindowWidth")
    width = _first(tags.get("WindowWidth"))
    if width is not None and width > 0.0:
        centre = _first(tags.get("WindowCenter")) or 0.0
        function = str(tags.get("VOILUTFunction") or "LINEAR")
        return by_rows(lambda rows: by_window(values(rows), centre, width, function), pixels)
    known = sample(pixels)
    if pixels.dtype == np.uint8 and np.array_equal(values(known), known):
        ends = 0.0, float(2 ** int(header.BitsStored) - 1)
    else:
        ends = percentiles(values(_without_padding(known, header)))
    return by_rows(lambda rows: shades(values(rows), ends), pixels)


def by_window(values: Values, centre: float, width: float, function: str) -> Shades:
    """Return values as shades 0 to 255 by a window (PS3.3, C.11.2.1.2 and C.11.2.1.3).

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
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = value[0] if value else None
    return None if value in {None, ""} else float(value)


def _without_padding(stored: Values, header: Any) -> Values:
    """Return stored values without the padding; all of them if nothing else is left."""
    low = header.get("PixelPaddingValue")
    if low is None:
        return stored
    limit = header.get("PixelPaddingRangeLimit")
    ends = [_stored(value, stored.dtype) for value in (low, low if limit is None else limit)]
    kept = stored[(stored < min(ends)) | (stored > max(ends))]
    return kept if kept.size else stored


def _stored(value: Any, kind: np.dtype[Any]) -> int:
    """Return a tag's value as the pixels store it, whatever sign the tag's own kind has."""
    if isinstance(value, bytes):
        value = int.from_bytes(value, "little")
    bits = int(value) % (1 << 8 * kind.itemsize)
    content = bits.to_bytes(kind.itemsize, "little")
    return int.from_bytes(content, "little", signed=kind.kind == "i")


def _eight_bits(colours: Values, bits: int) -> Shades:
    """Return colours [H, W, 3 or 4] of some bits as RGB of 8 bits."""
    share = 255 / (2**bits - 1)
    scaled: Shades = np.rint(colours[..., :3].astype(np.float64) * share).astype(np.uint8)
    return scaled
