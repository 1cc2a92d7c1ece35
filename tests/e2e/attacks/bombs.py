"""Folders of images that are made to take memory or to stop a reader, and what loading them costs.

    python -m tests.e2e.attacks.bombs [CASE ...] [--seconds 300]

Each case is a folder of two classes with eight small images, and beside them files that are made
by hand. A child process loads the folder; the table shows its peak memory above that of a child
that loads the eight small images alone, the peak of the process that decodes for it, and the
seconds of CPU time of both. A child that is not done in time is ended, and counts as one that
hangs. Exit code 1 if the child takes more than 300 MiB, both together more than 800, or it hangs.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

SIDE: Final = 9459
"""A square of this side has just under 89 megapixels, the limit."""
MORE_MAX: Final = 300
"""MiB above a node's own memory that any folder may take."""
BOTH_MAX: Final = 800
"""The same with the process that decodes."""
CHILD: Final = """
import pathlib, resource, sys, time
from fednode.data.base import DataSettings
from fednode.data.decode import DECODER
from fednode.data.load import look
began = time.process_time()
problems, data = look(DataSettings(path=sys.argv[1]))
took = time.process_time() - began
DECODER.stop()
below = resource.getrusage(resource.RUSAGE_CHILDREN)
took += below.ru_utime + below.ru_stime
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
said = ascii(next((str(one) for one in problems if "kipped" in str(one)), ""))
print(f"{took:.1f}|{peak:.0f}|{below.ru_maxrss / 1024:.0f}|{data is not None}|{said[:150]}")
"""
PNG_KINDS: Final = {"grey": (0, 1), "rgb": (2, 3), "rgba": (6, 4)}


def png(path: Path, side: int, kind: str, depth: int = 8, extra: bytes = b"") -> None:
    """Write a black PNG, and chunks behind its header."""
    number, channels = PNG_KINDS[kind]
    packer = zlib.compressobj(9)
    line = b"\0" + bytes(side * channels * depth // 8)
    body = b"".join(packer.compress(line) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, depth, number, 0, 0, 0)
    parts = chunk(b"IHDR", header) + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def chunk(name: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG."""
    ends = struct.pack(">I", len(content)), struct.pack(">I", zlib.crc32(name + content))
    return ends[0] + name + content + ends[1]


def dicom(path: Path, stored: np.ndarray, deflated: bool = False, extra: int = 0) -> None:
    """Write grey values [H, W] as a DICOM file, with `extra` bytes of another element."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import (
        UID,
        DeflatedExplicitVRLittleEndian,
        ExplicitVRLittleEndian,
        SecondaryCaptureImageStorage,
    )

    made, meta = Dataset(), FileMetaDataset()
    meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian if deflated else ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = made.SOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID = UID("1.2.3")
    made.file_meta = meta
    made.Rows, made.Columns = stored.shape
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated = made.BitsStored = 8 * stored.dtype.itemsize
    made.HighBit, made.PixelRepresentation = made.BitsStored - 1, 0
    if extra:
        made.add_new(0x00420011, "OB", bytes(extra))
    made.PixelData = stored.tobytes()
    made.save_as(path, enforce_file_format=True)


def many_pngs(kind: str, depth: int) -> Callable[[Path], None]:
    """Return what writes eight PNGs of the largest size."""

    def make(folder: Path) -> None:
        for number in range(8):
            png(folder / f"x{number}.png", SIDE, kind, depth)

    return make


def pictures(mode: str, suffix: str, count: int, side: int = SIDE, **words: Any) -> Any:
    """Return what writes some large images of one colour by Pillow."""

    def make(folder: Path) -> None:
        image = Image.new(mode, (side, side))
        for number in range(count):
            image.save(folder / f"x{number}{suffix}", **words)

    return make


def text_chunks(folder: Path) -> None:
    """Write PNGs whose texts are a thousand times as long as the file."""
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20), 9))
    for number in range(8):
        png(folder / f"x{number}.png", 40, "grey", 8, text * 2000)


def same_tags(folder: Path) -> None:
    """Write a TIFF of 8 MiB in which a thousand tags name the same bytes."""
    image, content = folder / "x.tif", bytes(8 << 20)
    tags = [struct.pack("<HHII", 40_000 + at, 1, len(content), 8) for at in range(1000)]
    known = [(256, 40), (257, 40), (258, 8), (259, 1), (262, 1), (273, 8), (278, 40), (279, 1600)]
    tags = [struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in known] + tags
    ifd = struct.pack("<H", len(tags)) + b"".join(tags) + bytes(4)
    image.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(content)) + content + ifd)


def sparse_chunk(folder: Path) -> None:
    """Write a PNG of 40 x 40 pixels whose file holds 2 GiB of an unknown chunk behind them."""
    path = folder / "x.png"
    png(path, 40, "grey")
    with path.open("r+b") as file:
        file.seek(-12, os.SEEK_END)
        file.write(struct.pack(">I", (2 << 30) - 64) + b"prVt")
        file.truncate(2 << 30)


def progressive(folder: Path) -> None:
    """Write a progressive JPEG, whose decoder keeps all coefficients."""
    Image.new("RGB", (SIDE, SIDE)).save(folder / "x.jpg", progressive=True, subsampling=0)


def raw_name(folder: Path) -> None:
    """Make a class folder whose name is not UTF-8."""
    made = os.fsencode(folder.parent) + b"/\xff\xfe"
    os.mkdir(made)
    for number in range(3):
        Path(os.fsdecode(made + b"/%d.png" % number)).write_bytes((folder / "1.png").read_bytes())


def _dicom_of(kind: str, side: int, deflated: bool = False, extra: int = 0) -> Any:
    return lambda folder: dicom(folder / "x.dcm", np.zeros((side, side), kind), deflated, extra)


CASES: Final[dict[str, Callable[[Path], None]]] = {
    "eight RGBA PNG": many_pngs("rgba", 8),
    "eight 16-bit PNG": many_pngs("grey", 16),
    "eight 16-bit RGB PNG": many_pngs("rgb", 16),
    "PNG of 3.6 gigapixels": lambda folder: png(folder / "x.png", 60_000, "grey"),
    "PNG with 2,000 packed texts": text_chunks,
    "PNG with 2 GiB behind its pixels": sparse_chunk,
    "four float TIFF": pictures("F", ".tif", 4, compression="tiff_deflate"),
    "four 16-bit TIFF": pictures("I;16", ".tif", 4, compression="tiff_deflate"),
    "TIFF with 1,000 equal tags": same_tags,
    "four CMYK JPEG": pictures("CMYK", ".jpg", 4),
    "progressive JPEG": progressive,
    "WebP of 81 megapixels": pictures("RGB", ".webp", 2, 9000),
    "four GIF": pictures("P", ".gif", 4),
    "BMP": pictures("RGB", ".bmp", 1),
    "DICOM, 1.5 GiB deflated": _dicom_of("u2", 512, True, 1500 << 20),
    "DICOM, 32 bits deflated": _dicom_of("u4", 9400, True),
    "DICOM, 32 bits": _dicom_of("u4", 9400),
    "DICOM, 16 bits": _dicom_of("u2", 9400),
    "FIFO named by digits": lambda folder: os.mkfifo(folder / "123"),
    "FIFO with a suffix": lambda folder: os.mkfifo(folder / "x.png"),
    "link to /dev/zero": lambda folder: os.symlink("/dev/zero", folder / "55"),
    "folder whose name is not UTF-8": raw_name,
}


def plain(root: Path) -> Path:
    """Make two classes of four small images each; return the first class's folder."""
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(4):
            noise = Image.effect_noise((40, 40), 30 + number + len(list(root.iterdir())))
            noise.convert("RGB").save(root / name / f"{number}.png")
    return root / "cat"


def cost(root: Path, seconds: float) -> tuple[str, float, float, str]:
    """Load a folder in a child.

    Return its seconds (or what happened), its MiB and its decoder's, and what it said.
    """
    words = [sys.executable, "-c", CHILD, str(root)]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "hangs", 0.0, 0.0, ""
    if ran.returncode:
        last = ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"]
        return "fails", 0.0, 0.0, last[-1]
    took, peak, below, usable, said = ran.stdout.strip().split("|", 4)
    return took, float(peak), float(below), f"{'used' if usable == 'True' else 'not used'}; {said}"


def main(words: list[str]) -> int:
    """Print a line for each case; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.attacks.bombs")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args(words)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="bombs-") as made:
        plain(Path(made) / "plain")
        _, own, *_ = cost(Path(made) / "plain", given.seconds)
        print(f"a child that loads eight small images: {own:.0f} MiB", flush=True)
        for case in given.cases:
            root = Path(made) / "case"
            CASES[case](plain(root))
            size = sum(one.stat().st_blocks for one in root.rglob("*")) / 2048
            took, peak, below, said = cost(root, given.seconds)
            wrong += took in {"hangs", "fails"} or peak - own > MORE_MAX
            wrong += peak - own + below > BOTH_MAX
            more = f"{max(peak - own, 0):5.0f} + {below:3.0f}" if peak else "        -"
            print(
                f"{case:34} {size:7.1f} MiB on disk {more} MiB {took:>6} s of CPU  {said}",
                flush=True,
            )
            subprocess.run(["rm", "-rf", str(root)], check=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
