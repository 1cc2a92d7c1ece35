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
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from fednode.data.pixels import Decoded, Unusable, Values, Window, grey, require_room

EXTRA: Final = "pip install 'fednode[dicom]'"
GREY: Final = ("MONOCHROME1", "MONOCHROME2")
PALETTE: Final = "PALETTE COLOR"
COLOURS: Final = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


def installed() -> bool:
    """Tell whether DICOM files can be read here."""
    return importlib.util.find_spec("pydicom") is not None


def decode(path: Path, window: Window) -> Decoded:
    """Return the middle frame of a DICOM file in RGB.

    Raise Unusable if the file holds no picture that can be decoded here, or pydicom's error if it
    is damaged, which may be of any type.
    """
    if not installed():
        raise Unusable(f"a DICOM file, which takes an extra: run `{EXTRA}`")
    from pydicom import config
    from pydicom.pixels import pixel_array

    config.settings.reading_validation_mode = config.IGNORE  # values that are not used may be odd
    header = _header(path)
    frames = int(header.get("NumberOfFrames") or 1)
    middle = (frames - 1) // 2
    pixels = pixel_array(path, index=middle, force=True)
    kind = str(header.PhotometricInterpretation)
    if kind in GREY:
        shades = _windowed(pixels, header, middle, window)
        made = 255 - shades if kind == "MONOCHROME1" else shades
    elif kind == PALETTE:
        from pydicom.pixels import apply_color_lut

        bits = int(header.RedPaletteColorLookupTableDescriptor[2])
        made = _eight_bits(apply_color_lut(pixels, header), bits)
    elif kind in COLOURS:
        made = _eight_bits(pixels, int(header.BitsStored))
    else:
        raise Unusable(f"DICOM's photometric interpretation {kind} is not supported")
    return Decoded(Image.fromarray(made).convert("RGB"), frames)


def _header(path: Path) -> Any:
    """Return the data set without its pixels; raise Unusable if they cannot be decoded."""
    from pydicom import dcmread
    from pydicom.pixels import get_decoder

    header = dcmread(path, stop_before_pixels=True, force=True)
    missing = [one for one in ("Rows", "Columns", "PhotometricInterpretation") if one not in header]
    if missing:
        raise Unusable(f"a DICOM file without a picture (it has no {missing[0]})")
    require_room(int(header.Columns), int(header.Rows))
    syntax = header.file_meta.get("TransferSyntaxUID")
    if syntax is None or not syntax.is_compressed:
        return header
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
    return header


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
    values: Values = apply_modality_lut(pixels, table)
    if window is not None:
        return grey(values, window)
    voi = header.get("VOILUTSequence")
    if voi:
        bits = int(voi[0].LUTDescriptor[2])
        whole = np.rint(values).astype(np.int64)
        return grey(apply_voi(whole, header), (0.0, float(2**bits - 1)))
    tags = _holder(header, frame, "FrameVOILUTSequence", "WindowWidth")
    width = _first(tags.get("WindowWidth"))
    if width is not None and width > 0.0:
        centre = _first(tags.get("WindowCenter")) or 0.0
        return by_window(values, centre, width, str(tags.get("VOILUTFunction") or "LINEAR"))
    if pixels.dtype == np.uint8 and np.array_equal(values, pixels):
        return grey(values, (0.0, float(2 ** int(header.BitsStored) - 1)))
    return grey(values, None, _without_padding(pixels, values, header))


def by_window(values: Values, centre: float, width: float, function: str) -> npt.NDArray[np.uint8]:
    """Return values [H, W] as shades 0 to 255 by a window (PS3.3, C.11.2.1.2 and C.11.2.1.3).

    function: LINEAR, LINEAR_EXACT or SIGMOID.
    """
    if function == "SIGMOID":
        shares = 1.0 / (1.0 + np.exp(-4.0 * (values.astype(np.float64) - centre) / width))
        return grey(shares, (0.0, 1.0))
    if function == "LINEAR":
        centre, width = centre - 0.5, width - 1.0
    return grey(values, (centre - width / 2, centre + width / 2))


def _first(value: Any) -> float | None:
    """Return a number tag's first value; None if there is none."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return float(value) if value else None
    return float(value[0]) if len(value) else None


def _without_padding(pixels: Values, values: Values, header: Any) -> Values:
    """Return the values of all pixels but the padding; all values if nothing else is left."""
    low = header.get("PixelPaddingValue")
    if low is None:
        return values
    limit = header.get("PixelPaddingRangeLimit")
    ends = (int(low), int(low if limit is None else limit))
    kept: Values = values[(pixels < min(ends)) | (pixels > max(ends))]
    return kept if kept.size else values


def _eight_bits(colours: Values, bits: int) -> npt.NDArray[np.uint8]:
    """Return colours [H, W, 3 or 4] of some bits as RGB of 8 bits."""
    shares = colours[..., :3].astype(np.float64) * (255 / (2**bits - 1))
    rgb: npt.NDArray[np.uint8] = np.rint(shares).astype(np.uint8)
    return rgb
