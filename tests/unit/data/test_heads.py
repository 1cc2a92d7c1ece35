"""What decoding takes is known from the head of a file, and bombs are refused before they burst."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fednode.data import budget, decode
from fednode.data.heads import peak
from fednode.data.images import examine
from tests.e2e.attacks import bombs
from tests.unit.data.rgb import read_rgb

MIB = 1 << 20


def need(path: Path) -> float:
    """Return the bytes a pixel that decoding a file is thought to take."""
    with Image.open(path) as image:
        return peak(image, image.size) / (image.width * image.height)


@pytest.mark.parametrize(
    ("mode", "suffix", "words", "bytes_"),
    [
        ("RGB", ".png", {}, 4),
        ("L", ".png", {}, 5),
        ("P", ".png", {}, 5),
        ("RGBA", ".png", {}, 8),
        ("I;16", ".png", {}, 5),
        ("F", ".tif", {}, 5),
        ("RGB", ".jpg", {}, 4),
        ("CMYK", ".jpg", {}, 8),
        ("RGB", ".jpg", {"progressive": True, "subsampling": 0}, 10),
        ("RGB", ".jpg", {"progressive": True, "subsampling": 2}, 7),
    ],
)
def test_bytes_a_pixel(
    tmp_path: Path, mode: str, suffix: str, words: dict[str, Any], bytes_: int
) -> None:
    path = tmp_path / f"one{suffix}"
    Image.new(mode, (400, 200)).save(path, **words)
    assert need(path) == bytes_


def test_a_turned_image_is_held_twice_and_a_strip_beside_its_image(tmp_path: Path) -> None:
    image = Image.new("RGB", (400, 200))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "one.jpg", exif=exif)
    assert need(tmp_path / "one.jpg") == 8
    deep = Image.new("F", (400, 200))
    deep.save(tmp_path / "one.tif", compression="tiff_deflate", tiffinfo={278: 200})
    assert 8 <= need(tmp_path / "one.tif") < 8.1
    deep.save(tmp_path / "two.tif", compression="tiff_deflate", tiffinfo={278: 1})
    assert need(tmp_path / "two.tif") < 5.2


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("PNG with 2,000 packed texts", "too large: its tags and texts have over 8 MiB"),
        ("PNG with 2 GiB behind its pixels", "too large: its tags and texts have over 8 MiB"),
        ("DICOM, small and deflated", "a DICOM file compressed as Deflated Explicit VR Little"),
    ],
)
def test_bombs_are_refused_before_memory_is_taken(tmp_path: Path, case: str, said: str) -> None:
    if case.startswith("DICOM"):
        bombs.dicom(tmp_path / "x.dcm", np.zeros((8, 8), "u2"), True, 64 * MIB)
    else:
        Image.new("L", (4, 4)).save(tmp_path / "1.png")
        bombs.CASES[case](tmp_path)
    path = next(one for one in tmp_path.iterdir() if one.name.startswith("x"))
    tracemalloc.start()
    try:
        fault = examine([path])[path].fault or ""
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fault.startswith(said)
    assert most < 20 * MIB


def test_an_image_that_takes_too_much_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "SHARED", budget.Budget(300_000))
    for mode in ("RGB", "RGBA"):
        Image.new(mode, (250, 200)).save(tmp_path / f"{mode}.png")
    found = {path.name: one.fault for path, one in examine(sorted(tmp_path.iterdir())).items()}
    wanted = "too large: an image of 250 x 200 pixels (PNG, RGBA) takes 0 MiB of memory"
    assert found["RGB.png"] is None
    assert (found["RGBA.png"] or "").startswith(wanted)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "I;16", "F", "P"])
def test_pieces_make_the_image_that_the_whole_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    rng = np.random.default_rng(3)
    noise = [Image.fromarray(rng.integers(0, 256, (70, 90), dtype=np.uint8)) for _ in range(4)]
    if mode == "F":
        image = Image.fromarray(rng.normal(size=(70, 90)).astype(np.float32))
    elif mode == "I;16":
        image = Image.fromarray(rng.integers(0, 4000, (70, 90)).astype(np.uint16))
    elif mode == "P":
        image = noise[0].convert("P")
    else:
        image = Image.merge(mode, noise[: len(mode)])
    path = tmp_path / ("one.tif" if mode == "F" else "one.png")
    if mode == "P":
        image.save(path, transparency=7)
    else:
        image.save(path)
    whole = np.asarray(read_rgb(path))
    monkeypatch.setattr("fednode.data.pixels.PIECE", 300)
    np.testing.assert_array_equal(np.asarray(read_rgb(path)), whole)


def test_an_image_of_more_than_the_room_is_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.png"
    Image.new("RGB", (100, 60)).save(path)
    for room, size in ((4 * 100 * 60 - 1, (50, 30)), (4 * 100 * 60, (100, 60))):
        monkeypatch.setattr(decode, "ROOM", room)
        with decode.decode(path) as found:
            assert found.image.size == size


def test_memory_is_freed_before_another_thread_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    Image.new("RGB", (100, 60)).save(path)
    with decode.decode(path) as found:
        found.image.getpixel((0, 0))
    with pytest.raises(ValueError, match="closed image"):
        found.image.getpixel((0, 0))


def test_a_constant_image_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = [], decode._decode

    def counted(*given: Any) -> Any:
        loaded.append(given)
        return load(*given)

    monkeypatch.setattr(decode, "_decode", counted)
    Image.new("RGB", (640, 640)).save(tmp_path / "one.png")
    Image.new("RGB", (640, 640)).save(tmp_path / "two.jpg")
    for path, times in ((tmp_path / "one.png", 1), (tmp_path / "two.jpg", 2)):
        assert examine([path])[path].constant
        assert len(loaded) == times, "of a JPEG the first is a small copy"
        loaded.clear()
