"""Images of every kind become the RGB that another decoder, or the kind's definition, gives."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from fednode.data.decode import decode, is_image
from tests.unit.data.rgb import read_rgb


def pixels(path: Path, window: tuple[float, float] | None = None) -> np.ndarray:
    return np.asarray(read_rgb(path, window)).astype(int)


def seen(path: Path) -> np.ndarray:
    """Return what OpenCV reads."""
    return np.asarray(cv2.imread(str(path), cv2.IMREAD_UNCHANGED))


def slope(bits: int) -> np.ndarray:
    """Return a picture [40, 50] with values up to 2**bits - 1, none of which is very frequent."""
    return np.linspace(0, 2**bits - 1, 2000).astype(np.uint16).reshape(40, 50)


def shades(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return shades of a window, computed in exact steps: the count of thresholds below a value."""
    steps = low + (np.arange(255) + 0.5) * (high - low) / 255
    return np.searchsorted(steps, values.astype(np.float64), side="right")


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("bits", [12, 16])
def test_grey_of_16_bits_spans_all_shades(tmp_path: Path, suffix: str, bits: int) -> None:
    path = tmp_path / f"one{suffix}"
    assert cv2.imwrite(str(path), slope(bits))
    found, stored = pixels(path), seen(path)
    np.testing.assert_array_equal(stored, slope(bits))
    low, high = np.sort(stored.ravel())[[10, -11]]  # half a percent of 2,000
    assert np.abs(found - shades(stored, low, high)[..., None]).max() <= 1
    assert (found.min(), found.max()) == (0, 255)
    assert found.std() > 70


def test_a_tiff_in_which_white_is_zero_is_inverted(tmp_path: Path) -> None:
    for name, kind in (("black.tif", 1), ("white.tif", 0)):
        Image.fromarray(slope(16)).save(tmp_path / name, tiffinfo={262: kind})
    np.testing.assert_array_equal(
        pixels(tmp_path / "black.tif"), 255 - pixels(tmp_path / "white.tif")
    )


def test_signed_and_floating_values_are_windowed(tmp_path: Path) -> None:
    signed = slope(12).astype(np.int32) - 1024
    Image.fromarray(signed).save(tmp_path / "signed.tif")
    np.testing.assert_array_equal(
        pixels(tmp_path / "signed.tif", (-160, 240))[..., 0], shades(signed, -160, 240)
    )
    real = slope(12).astype(np.float32) / 4096
    real[0, 0] = np.nan
    Image.fromarray(real).save(tmp_path / "real.tif")
    found = pixels(tmp_path / "real.tif")
    assert (found[0, 0, 0], found[-1, -1, 0]) == (0, 255)


def test_a_palette_gif_has_the_colours_of_its_palette(tmp_path: Path) -> None:
    path = tmp_path / "one.gif"
    image = Image.new("P", (30, 20))
    image.putpalette([255, 0, 0, 0, 128, 0, 10, 20, 250])
    image.putdata([at % 3 for at in range(600)])
    image.save(path)
    wanted = np.array([(255, 0, 0), (0, 128, 0), (10, 20, 250)])[np.arange(600) % 3]
    np.testing.assert_array_equal(pixels(path).reshape(-1, 3), wanted)


@pytest.mark.parametrize("kind", ["RGBA", "LA", "P"])
def test_what_is_transparent_becomes_white(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "one.png"
    clear = Image.new("RGBA", (20, 10), (9, 9, 9, 0))
    clear.paste((60, 60, 60, 255), (0, 0, 10, 10))
    clear.paste((0, 0, 0, 128), (15, 0, 20, 10))
    if kind == "P":
        table = Image.new("P", (20, 10), 0)
        table.putpalette([9, 9, 9, 60, 60, 60])
        table.paste(1, (0, 0, 10, 10))
        table.save(path, transparency=0)
    else:
        clear.convert(kind).save(path)
    found = pixels(path)
    assert (found[:, :10] == 60).all()
    assert (found[:, 10:15] == 255).all()
    if kind != "P":
        over = seen(path).astype(float)
        alpha = over[..., -1:] / 255
        wanted = over[..., :3][..., ::-1] * alpha + 255 * (1 - alpha)
        assert np.abs(found - wanted).max() <= 1


def test_a_cmyk_jpeg_is_converted_by_ink(tmp_path: Path) -> None:
    path = tmp_path / "one.jpg"
    inks = [(255, 0, 0, 0), (0, 255, 0, 0), (0, 0, 255, 0), (0, 0, 0, 255), (40, 80, 0, 60)]
    image = Image.new("CMYK", (80, 16))
    for at, ink in enumerate(inks):
        image.paste(ink, (16 * at, 0, 16 * at + 16, 16))
    image.save(path, quality=100)
    found = pixels(path)[8, 8::16]
    # The share of light that passes both the colour's ink and the black one.
    wanted = [[(255 - c) * (255 - ink[3]) / 255 for c in ink[:3]] for ink in inks]
    assert np.abs(found - np.array(wanted)).max() <= 3


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
def test_rotation_in_the_metadata_is_applied(tmp_path: Path, suffix: str, turn: int) -> None:
    path = tmp_path / f"one{suffix}"
    corners = Image.new("RGB", (64, 32), (20, 20, 20))
    corners.paste((250, 30, 30), (0, 0, 32, 16))
    corners.paste((30, 30, 250), (32, 16, 64, 32))
    exif = corners.getexif()
    exif[0x0112] = turn
    corners.save(path, exif=exif, lossless=True)  # `lossless` is WebP's; others ignore it
    stored = np.asarray(corners).astype(int)
    # Where the stored picture's first row and column lie, by the EXIF standard.
    upright = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),
        6: stored[::-1].swapaxes(0, 1),
        7: stored[::-1, ::-1].swapaxes(0, 1),
        8: stored[:, ::-1].swapaxes(0, 1),
    }[turn]
    found = pixels(path)
    assert found.shape == upright.shape
    assert np.abs(found - upright).mean() < 3


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_a_turned_image_of_16_bits_is_upright_too(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"one{suffix}"
    image = Image.fromarray(slope(16))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(path, exif=exif)
    found = pixels(path, (0.0, 65_535.0))[..., 0]
    np.testing.assert_array_equal(found, shades(slope(16)[::-1].T, 0, 65_535))


def test_colours_of_16_bits_keep_their_high_bytes(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    colours = np.stack([slope(16), slope(16)[::-1], slope(16) // 2], axis=-1)
    cv2.imwrite(str(path), colours[..., ::-1])
    np.testing.assert_array_equal(pixels(path), colours // 256)


def test_of_several_frames_the_first_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "one.gif"
    frames = [Image.new("RGB", (8, 8), (shade, 0, 0)) for shade in (10, 200)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert pixels(path)[0, 0, 0] == 10
    with decode(path) as found:
        assert found.frames == 1


def test_which_files_are_images(tmp_path: Path) -> None:
    dicom = b"\0" * 128 + b"DICM"
    for name, content in (
        *(("IM0001", dicom), ("1.2.840.113", dicom), ("README", b"text"), ("7.8", b"")),
        *(("notes.txt", dicom), ("a.DCM", b""), ("b.JPG", b"")),
    ):
        (tmp_path / name).write_bytes(content)
    found = {path.name for path in tmp_path.iterdir() if is_image(path)}
    assert found == {"IM0001", "1.2.840.113", "a.DCM", "b.JPG"}
    assert not is_image(tmp_path / "gone")
