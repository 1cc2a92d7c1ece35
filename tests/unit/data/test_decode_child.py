"""Files that a stranger may have made are decoded by a child process with limits."""

from __future__ import annotations

import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fednode.data import decode as module
from fednode.data.decode import Decoder, decode, decode_file
from fednode.data.images import examine
from fednode.data.pixels import Unusable
from tests.e2e.attacks import bombs
from tests.unit.data.rgb import read_rgb

MIB = 1 << 20
GUARD_S = 180.0


@pytest.fixture
def child() -> Iterator[Decoder]:
    made = Decoder()
    yield made
    made.stop()


def gif(path: Path, shade: int = 9) -> Path:
    Image.new("L", (8, 6), shade).save(path)
    return path


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("PNG with 2,000 packed texts", "damaged: Too much memory used in text chunks"),
        (
            "PNG with 2 GiB behind its pixels",
            "too large or damaged: an image of 40 x 40 pixels cannot",
        ),
        ("TIFF with 1,000 equal tags", ""),
        ("DICOM, small and deflated", "a DICOM file compressed as Deflated Explicit VR Little"),
    ],
)
def test_bombs_burst_in_the_child(tmp_path: Path, case: str, said: str) -> None:
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
    assert fault.startswith(said) if said else not fault
    assert most < 70 * MIB


@pytest.mark.parametrize(
    ("mode", "name", "said"),
    [
        ("RGBA", "x.png", "too large or damaged: an image of 9,000 x 9,000 pixels cannot be"),
        ("RGB", "x.webp", "too large or damaged: an image"),
    ],
)
def test_images_that_take_much_get_the_same_verdict_each_time(
    tmp_path: Path, mode: str, name: str, said: str
) -> None:
    path = tmp_path / name
    if mode == "RGBA":
        bombs.png(path, 9000, "rgba")
    else:
        Image.new(mode, (9000, 9000)).save(path, method=0)
    for _ in range(2):
        assert (examine([path])[path].fault or "").startswith(said)


@pytest.mark.parametrize(
    ("mode", "suffix"), [("L", ".gif"), ("RGB", ".bmp"), ("RGB", ".webp"), ("RGBA", ".tif")]
)
def test_the_child_gives_what_this_process_would(tmp_path: Path, mode: str, suffix: str) -> None:
    path = tmp_path / f"one{suffix}"
    noise = [Image.effect_noise((40, 30), 60 + at) for at in range(len(mode))]
    Image.merge(mode, noise).save(path)
    here = decode_file(path, None)
    assert np.array_equal(np.asarray(read_rgb(path)), np.asarray(here.image))


def test_an_image_of_more_than_usual_size_is_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.png"
    Image.new("RGB", (100, 60)).save(path)
    for most, size in ((100 * 60 - 1, (50, 30)), (100 * 60, (100, 60))):
        monkeypatch.setattr(module, "PIXELS_KEPT", most)
        assert decode_file(path, None).image.size == size


def test_few_large_images_are_decoded_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL_PIXELS", 100)
    monkeypatch.setattr(module, "LARGE", threading.BoundedSemaphore(1))
    path, small = tmp_path / "one.png", tmp_path / "two.png"
    Image.new("RGB", (20, 20)).save(path)
    Image.new("RGB", (5, 5)).save(small)
    with decode(path) as found:
        assert module.LARGE.acquire(blocking=False) is False
        assert read_rgb(small).size == (5, 5)
    with pytest.raises(ValueError, match="closed image"):
        found.image.getpixel((0, 0))
    assert module.LARGE.acquire(blocking=False)


def test_a_constant_image_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = [], module.decode_image

    def counted(*given: Any) -> Any:
        loaded.append(given)
        return load(*given)

    monkeypatch.setattr(module, "decode_image", counted)
    Image.new("RGB", (640, 640)).save(tmp_path / "one.png")
    Image.new("RGB", (640, 640)).save(tmp_path / "two.jpg")
    for path, times in ((tmp_path / "one.png", 1), (tmp_path / "two.jpg", 2)):
        assert examine([path])[path].constant
        assert len(loaded) == times, "of a JPEG the first is a small copy"
        loaded.clear()


def test_the_child_gets_no_secret_of_the_environment(
    tmp_path: Path, child: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNODE_PAGE__TOKEN", "t0ken")
    child.decode(gif(tmp_path / "one.gif"), None)
    assert child._process is not None
    environment = Path(f"/proc/{child._process.pid}/environ").read_bytes()
    assert b"OPENBLAS_NUM_THREADS" in environment
    assert b"t0ken" not in environment


def test_an_idle_child_ends_and_another_takes_its_place(
    tmp_path: Path, child: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gif(tmp_path / "one.gif")
    for shade in (9, 200):
        assert child.decode(gif(path, shade), None).image.getpixel((0, 0)) == (shade,) * 3
        assert child._process is not None
        os.kill(child._process.pid, signal.SIGTERM)
        child._process.wait(GUARD_S)


def test_a_file_that_ends_its_decoder_is_refused(
    tmp_path: Path, child: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "import sys; sys.argv[1:] and __import__('os').close(int(sys.argv[1]))"
    (tmp_path / "fake").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{ends}" $3\n')
    (tmp_path / "fake").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "fake"))
    with pytest.raises(Unusable, match="its decoder ended without a word"):
        child.decode(gif(tmp_path / "one.gif"), None)


def test_a_file_that_takes_too_long_is_refused_and_the_next_is_read(
    tmp_path: Path, child: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gif(tmp_path / "one.gif")
    with monkeypatch.context() as patch:
        patch.setattr(module, "TIME_S", 0.0)
        with pytest.raises(Unusable, match="decoding it takes more than 0 s"):
            child.decode(path, None)
    assert child.decode(path, None).image.size == (8, 6)


def test_threads_share_the_child_and_a_fork_has_its_own(tmp_path: Path) -> None:
    files = [gif(tmp_path / f"{at}.gif", at) for at in range(20)]
    with ThreadPoolExecutor(8) as pool:
        found = [one.getpixel((0, 0)) for one in pool.map(read_rgb, files)]
    assert found == [(at,) * 3 for at in range(20)]
    if not (pid := os.fork()):
        os._exit(read_rgb(files[7]).getpixel((0, 0)) != (7, 7, 7))
    assert os.waitpid(pid, 0)[1] == 0
    assert read_rgb(files[8]).getpixel((0, 0)) == (8, 8, 8)
