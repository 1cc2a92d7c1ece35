"""DICOM files: their windows and kinds, beside pydicom's own transformations."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels import apply_modality_lut, apply_windowing
from pydicom.uid import (
    UID,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGLSLossless,
    SecondaryCaptureImageStorage,
)

from fednode.data.base import DataSettings
from fednode.data.decode import decode, decode_file, is_image
from fednode.data.dicom import by_window
from fednode.data.images import examine
from fednode.data.load import load
from fednode.data.pixels import Unusable
from tests.unit.data.rgb import read_rgb

SHIPPED = Path(pydicom.__file__).parent / "data" / "test_files"


def dicom(path: Path, stored: np.ndarray, bits: int = 12, **tags: Any) -> Path:
    """Write frames [N, H, W], one frame [H, W] or colours [H, W, 3] as an uncompressed file."""
    made, meta = Dataset(), FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = made.SOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID = UID("1.2.3")
    made.file_meta = meta
    coloured = stored.ndim == 3 and stored.shape[-1] == 3
    made.SamplesPerPixel = 3 if coloured else 1
    made.PhotometricInterpretation = "RGB" if coloured else "MONOCHROME2"
    made.Rows, made.Columns = stored.shape[:2] if coloured else stored.shape[-2:]
    if coloured:
        made.PlanarConfiguration = 0
    elif stored.ndim == 3:
        made.NumberOfFrames = len(stored)
    made.BitsAllocated = 8 * stored.dtype.itemsize
    made.BitsStored, made.HighBit = bits, bits - 1
    made.PixelRepresentation = int(stored.dtype.kind == "i")
    made.PixelData = stored.tobytes()
    for name, value in tags.items():
        setattr(made, name, value)
    made.save_as(path, enforce_file_format=True)
    return path


def slope(bits: int = 12) -> np.ndarray:
    return np.linspace(0, 2**bits - 1, 2000).astype(np.uint16).reshape(40, 50)


def shown(path: Path, window: tuple[float, float] | None = None) -> np.ndarray:
    found = np.asarray(read_rgb(path, window)).astype(int)
    assert (found == found[..., :1]).all(), "grey"
    return found[..., 0]


def wanted(path: Path) -> np.ndarray:
    """Return shades by pydicom's own modality and window transformations."""
    held = pydicom.dcmread(path)
    values = apply_modality_lut(held.pixel_array, held)
    seen = apply_windowing(values, held).astype(np.float64)
    slope, low = float(held.get("RescaleSlope", 1)), float(held.get("RescaleIntercept", 0))
    ends = (low, low + slope * (2**held.BitsStored - 1))
    return np.asarray((seen - ends[0]) / (ends[1] - ends[0]) * 255)


def test_an_examination_keeps_no_identifier_of_a_patient(tmp_path: Path) -> None:
    names = ("DOE^JANE ", "DOE^JANE", "ROE", "")
    files = [dicom(tmp_path / f"{at}.dcm", slope(), PatientID=one) for at, one in enumerate(names)]
    first, second, third, nobody = examine(files).values()
    assert first.patient == second.patient != third.patient
    assert (len(third.patient), nobody.patient) == (32, "")
    assert "DOE" not in repr(first)


def test_patients_of_dicom_files_are_not_divided(tmp_path: Path) -> None:
    for kind in ("cyst", "stone"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for at in range(24):
            path = tmp_path / "images" / kind / f"{at}.dcm"
            dicom(path, slope() + at * 40 + (kind == "stone"), PatientID=f"DOE{at // 3}")
    settings = DataSettings(path=str(tmp_path / "images"), shots=0, test=0.4)
    (warned,) = load(settings).warnings
    assert " of 8 patients (by the DICOM tag PatientID) have training images and test im" in warned
    assert warned.endswith("set data.groups to dicom:PatientID, and no patient is divided.")
    assert "DOE" not in warned
    data = load(replace(settings, groups="dicom:PatientID"))
    parts = [
        {data.groups[image.path] for image in split.images} for split in (data.train, data.own)
    ]
    assert (len(parts[0] | parts[1]), parts[0] & parts[1]) == (8, set())
    assert not data.warnings


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize(
    "tags",
    [
        {"WindowCenter": 900, "WindowWidth": 1500},
        {"WindowCenter": 900, "WindowWidth": 1500, "RescaleSlope": 2, "RescaleIntercept": -1024},
        {"WindowCenter": [900, 40], "WindowWidth": [1500, 80]},
    ],
)
def test_twelve_bits_with_window_tags(tmp_path: Path, function: str, tags: dict[str, Any]) -> None:
    path = dicom(tmp_path / "one.dcm", slope(), VOILUTFunction=function, **tags)
    assert np.abs(shown(path) - wanted(path)).max() <= 0.51
    assert shown(path).std() > 30


def test_a_linear_window_of_width_1_is_a_threshold() -> None:
    found = by_window(np.array([[99.0, 100.0]]), 100.0, 1.0, "LINEAR")
    assert found.tolist() == [[0, 255]]


def test_the_window_of_the_settings_is_in_rescaled_units(tmp_path: Path) -> None:
    """A lung window in Hounsfield units, [-1350, 150]."""
    stored = slope()
    path = dicom(
        *(tmp_path / "one.dcm", stored),
        RescaleSlope=1, RescaleIntercept=-1024, RescaleType="HU", WindowCenter=40, WindowWidth=400,
    )  # fmt: skip
    units = stored.astype(float) - 1024
    exact = np.clip((units + 1350) / 1500, 0, 1) * 255
    assert np.abs(shown(path, (-1350.0, 150.0)) - exact).max() <= 0.51


def test_without_a_window_percentiles_are_taken_and_padding_is_left_out(tmp_path: Path) -> None:
    stored = slope().astype(np.int16)
    stored[:10] = -2000
    path = dicom(tmp_path / "one.dcm", stored, bits=16, PixelPaddingValue=-2000)
    found, inside = shown(path), np.sort(stored[10:].ravel())
    exact = np.clip((stored - inside[7]) / (inside[-8] - inside[7]), 0, 1) * 255
    assert np.abs(found - exact).max() <= 1
    assert (found[:10] == 0).all()


@pytest.mark.parametrize(
    ("kind", "written"), [("i2", 63_536), ("i2", -2000), ("u2", -2000), ("u2", 63_536)]
)
def test_the_padding_value_has_the_sign_of_the_pixels(
    tmp_path: Path, kind: str, written: int
) -> None:
    """Scanners write 63536 as US beside signed pixels; pydicom then does not read -2000."""
    stored = np.arange(-1000, 1000).reshape(40, 50).astype(kind)
    stored[:20] = np.array(63_536).astype(kind)
    path = dicom(tmp_path / "one.dcm", stored, 16)
    held = pydicom.dcmread(path)
    held.add_new(0x00280120, "US" if written > 0 else "SS", written)
    held.save_as(path)
    plain = dicom(tmp_path / "plain.dcm", stored[20:], 16)
    assert np.array_equal(shown(path)[20:], shown(plain))


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
@pytest.mark.parametrize("name", ["one.dcm", "one.IMA", "IM000001", "1.2.840"])
def test_a_file_without_preamble_and_meta_header_is_read(
    tmp_path: Path, syntax: Any, name: str
) -> None:
    whole = dicom(tmp_path / "whole.dcm", slope())
    path = tmp_path / name
    held = pydicom.dcmread(whole)
    del held.file_meta
    held.preamble = None
    with path.open("wb") as file:
        pydicom.dcmwrite(
            *(file, held), implicit_vr=syntax.is_implicit_VR, little_endian=True,
            enforce_file_format=False,
        )  # fmt: skip
    assert path.read_bytes()[128:132] != b"DICM"
    assert is_image(path)
    assert examine([path])[path].fault is None
    assert np.array_equal(shown(path), shown(whole))


@pytest.mark.parametrize("empty", ["RescaleSlope", "RescaleIntercept", "both"])
def test_an_empty_rescale_is_none(tmp_path: Path, empty: str) -> None:
    tags: dict[str, Any] = {"RescaleSlope": 2, "RescaleIntercept": -1000}
    tags |= dict.fromkeys(tags if empty == "both" else [empty])
    path = dicom(tmp_path / "one.dcm", slope(), 16, **tags)
    assert examine([path])[path].fault is None
    assert np.array_equal(shown(path), shown(dicom(tmp_path / "plain.dcm", slope(), 16)))


def test_eight_bits_without_a_window_stay_as_they_are(tmp_path: Path) -> None:
    stored = slope(7).astype(np.uint8)
    np.testing.assert_array_equal(shown(dicom(tmp_path / "one.dcm", stored, 8)), stored)


def test_monochrome1_is_inverted(tmp_path: Path) -> None:
    tags: dict[str, Any] = {"WindowCenter": 900, "WindowWidth": 1500}
    plain = dicom(tmp_path / "plain.dcm", slope(), **tags)
    other = dicom(tmp_path / "other.dcm", slope(), PhotometricInterpretation="MONOCHROME1", **tags)
    np.testing.assert_array_equal(shown(other), 255 - shown(plain))


def test_a_table_of_values_of_interest(tmp_path: Path) -> None:
    table = Dataset()
    table.LUTDescriptor = [4096, 0, 16]
    table.LUTData = (65_535 * (np.arange(4096) / 4095) ** 2).astype("<u2").tobytes()
    path = dicom(tmp_path / "one.dcm", slope(), VOILUTSequence=[table])
    assert np.abs(shown(path) - 255 * (slope() / 4095) ** 2).max() <= 1


def test_of_several_frames_the_middle_one_is_taken(tmp_path: Path) -> None:
    frames = np.stack([np.full((8, 8), shade, np.uint8) for shade in (10, 20, 30, 40)])
    path = dicom(tmp_path / "one.dcm", frames, 8)
    assert (shown(path) == 20).all()
    with decode(path) as found:
        assert found.frames == 4
    verdict = examine([path])[path]
    assert (verdict.frames, verdict.constant) == (4, True)


def test_an_enhanced_file_says_rescale_and_window_for_each_frame(tmp_path: Path) -> None:
    def group(centre: int, intercept: int) -> Dataset:
        window, values, item = Dataset(), Dataset(), Dataset()
        window.WindowCenter, window.WindowWidth = centre, 1001
        values.RescaleSlope, values.RescaleIntercept, values.RescaleType = 1, intercept, "US"
        item.FrameVOILUTSequence, item.PixelValueTransformationSequence = [window], [values]
        return item

    frames = np.stack([slope()] * 3)
    path = dicom(
        *(tmp_path / "one.dcm", frames),
        PerFrameFunctionalGroupsSequence=[group(0, 0), group(500, -1000), group(0, 0)],
    )
    exact = np.clip((slope().astype(float) - 1000 - (499.5 - 500)) / 1000, 0, 1) * 255
    assert np.abs(shown(path) - exact).max() <= 0.51


@pytest.mark.parametrize(
    "name",
    ["SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_rle_16bit.dcm", "SC_ybr_full_422_uncompressed.dcm"],
)
def test_colours_in_any_coding_are_those_of_the_plain_file(name: str) -> None:
    plain = np.asarray(read_rgb(SHIPPED / "SC_rgb_rle.dcm")).astype(int)
    found = np.asarray(read_rgb(SHIPPED / name)).astype(int)
    assert np.abs(found - plain).mean() < 3


def test_a_palette_is_looked_up() -> None:
    path = SHIPPED / "examples_palette.dcm"
    held = pydicom.dcmread(path)
    table = [
        np.frombuffer(getattr(held, f"{name}PaletteColorLookupTableData"), "<u2")
        for name in ("Red", "Green", "Blue")
    ]
    exact = np.stack([one[held.pixel_array] for one in table], axis=-1) / 65_535 * 255
    assert np.abs(np.asarray(read_rgb(path)) - exact).max() <= 0.51


def test_what_cannot_be_decoded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(path: Path) -> str:
        return examine([path])[path].fault or ""

    assert said(SHIPPED / "rtplan.dcm") == "a DICOM file without a picture (it has no Rows)"
    lossless = said(SHIPPED / "MR_small_jpeg_ls_lossless.dcm")
    assert lossless.startswith(f"a DICOM file compressed as {JPEGLSLossless.name}: decompress it")
    assert "gdcm" in lossless
    assert said(SHIPPED / "MR_truncated.dcm") == "a DICOM file that is cut off: copy it again"
    whole = dicom(tmp_path / "whole.dcm", slope()).read_bytes()
    (tmp_path / "half.dcm").write_bytes(whole[:-4012])
    assert said(tmp_path / "half.dcm") == (
        "a DICOM file without a picture (it has no pixels, or is cut off)"
    )
    strange = dicom(tmp_path / "one.dcm", slope(), PhotometricInterpretation="HSV")
    assert said(strange) == "DICOM's photometric interpretation HSV is not supported"
    huge = dicom(tmp_path / "two.dcm", slope(), Rows=12_000, Columns=12_000)
    assert said(huge) == "144 megapixels; the limit is 89"
    for name in ("SamplesPerPixel", "BitsAllocated"):
        held = pydicom.dcmread(strange)
        delattr(held, name)
        held.save_as(tmp_path / "lacks.dcm")
        assert said(tmp_path / "lacks.dcm") == f"a DICOM file without a picture (it has no {name})"
    text = tmp_path / "three.dcm"
    text.write_text("not a picture")
    assert said(text)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unusable, match=r"takes an extra: run `pip install 'fednode\[dicom\]'`"):
        decode_file(strange, None)
