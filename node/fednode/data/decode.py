"""Decode an image file of any kind to 8-bit RGB, with a limit of memory and time.

    8 bits a channel            as stored; transparent parts become white
    grey with more than 8 bits  a window of its values becomes 0 to 255
    DICOM                       see node/fednode/data/dicom.py

The window is `data.window`. If that is not set, a DICOM file's own window tags give it, and
otherwise percentiles of the image (pixels.py).

A small file can stand for an image, or tags, of gigabytes, and decoders do not say beforehand what
they will take. JPEG and PNG files of at most PIXELS_KEPT are decoded in this process, large ones
two at a time. All others are decoded by a child process, one after the other. Its memory is limited
by the system (RLIMIT_AS, on Linux). It ends by itself when nothing was asked for IDLE_S, and with
the process that started it. It gets no environment variable of fednode, which may hold a secret.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from fednode.data import dicom
from fednode.data.files import opened, system_fault
from fednode.data.pixels import (
    Decoded,
    Unusable,
    Window,
    by_rows,
    percentiles,
    require_room,
    sample,
    shades,
)
from fednode.freed import trim

DICOM_SUFFIXES: Final = (".dcm", ".dicom", ".ima")
SUFFIXES: Final = (
    ".bmp", *DICOM_SUFFIXES, ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff",
    ".webp",
)  # fmt: skip
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
PIXELS_KEPT: Final = 16_000_000
"""The largest image that is returned."""
SMALL_PIXELS: Final = 4_000_000
LARGE: Final = threading.BoundedSemaphore(2)
"""So many images of more than SMALL_PIXELS, or of the child, are held at a time."""
MEMORY: Final = 640 << 20
"""Bytes that decoding may take, beside the process itself."""
_PHOTOMETRIC: Final = 262
"""TIFF's tag; its value 0 says that the smallest number is white."""
VERSION: Final = 3
"""Version of the decoder. Raise it if any file's pixels change, so that no cache mixes both."""
USUAL: Final = ("JPEG", "PNG")
USUAL_BYTES: Final = 16 << 20
"""The largest file that is decoded in this process, if its image has at most PIXELS_KEPT."""
OURS: Final = "FEDNODE_"
TIME_S: Final = 120.0
IDLE_S: Final = 10.0
KINDS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind for kind in (Unusable, UnidentifiedImageError, MemoryError)
}


def decoder_key(window: Window) -> str:
    """Return what decoded pixels depend on beside the file, as a text for keys of caches."""
    shown = "auto" if window is None else f"{window[0]!r} {window[1]!r}"
    return f"decoder {VERSION}, window {shown}"


@contextmanager
def decode(path: Path, window: Window = None, side: int | None = None) -> Iterator[Decoded]:
    """Decode a file, upright by its EXIF orientation; its memory is freed behind the block.

    Of several frames take the first, of a DICOM file the middle one. An image of more than
    PIXELS_KEPT is halved until it has fewer.

    window: of images with more than 8 bits and of DICOM files. side: a JPEG may be decoded at a
    reduced size not below side x side, which is faster. Raise Unusable, MemoryError, or the
    decoder's error if the file is damaged or no image, usually OSError.
    """
    with ExitStack() as stack:
        decoded = _decode_usual(path, window, side, stack)
        if decoded is None:
            stack.enter_context(LARGE)
            decoded = DECODER.decode(path, window)
        stack.callback(decoded.image.close)  # before the turn of another
        yield decoded


def _decode_usual(path: Path, window: Window, side: int | None, stack: ExitStack) -> Decoded | None:
    """Decode a JPEG or PNG of usual size; return None for all others.

    stack: gets what is to be given back.
    """
    with opened(path) as file:
        usual = file.peek(8).startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))
        if not usual or os.fstat(file.fileno()).st_size > USUAL_BYTES:
            return None
        with Image.open(file, formats=USUAL) as image:
            full = image.size
            if full[0] * full[1] > PIXELS_KEPT:
                return None
            if full[0] * full[1] > SMALL_PIXELS:
                stack.enter_context(LARGE)
                stack.callback(trim)
            if side is not None:
                image.draft("RGB", (side, side))
            whole = image.size == full
            return replace(decode_image(image, window), whole=whole)


def is_image(path: Path) -> bool:
    """Tell by its suffix whether a file is an image; without a known one, whether it is DICOM.

    Scanners often name DICOM files by a number or a UID, so such files are opened.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return True
    return (not suffix or suffix[1:].isdigit()) and dicom.has_magic(path)


def decode_file(path: Path, window: Window) -> Decoded:
    """Decode any file, whatever memory it takes; see `decode`."""
    with opened(path) as file:
        start = file.peek(dicom.START_BYTES)[: dicom.START_BYTES]
        if path.suffix.lower() in DICOM_SUFFIXES or dicom.begins(start):
            made, frames, patient = dicom.decode(file, window)
            return Decoded(_rgb(Image.fromarray(made)), frames, patient)
        size = ""
        try:
            with Image.open(file, formats=FORMATS) as image:
                require_room(*image.size)
                size = f" of {image.width:,} x {image.height:,} pixels"
                large = image.width * image.height > PIXELS_KEPT
                return decode_image(image, window)
        except Unusable:
            raise
        except Exception as fault:  # some decoders do not say that memory was refused
            memory = isinstance(fault, MemoryError) or "decoder object" in str(fault)
            if not memory and not (size and large):
                raise
            raise Unusable(
                f"too large or damaged: an image{size} cannot be decoded in {MEMORY >> 20} MiB of "
                f"memory ({fault or 'no memory is left'})"
            ) from None


def decode_image(image: Image.Image, window: Window) -> Decoded:
    """Return an opened image in RGB, upright."""
    inverted = image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0  # type: ignore[attr-defined]
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode not in {"I", "F"} and not image.mode.startswith("I;16"):  # 8 bits a channel
        return Decoded(_rgb(_flattened(image)))
    values = np.asarray(image)
    ends = percentiles(sample(values)) if window is None else window
    made = by_rows(lambda rows: shades(rows, ends), values)
    if inverted:  # Pillow inverts such files of 8 bits itself
        np.subtract(255, made, out=made)
    return Decoded(_rgb(Image.fromarray(made)))


def _flattened(image: Image.Image) -> Image.Image:
    """Return an image of at most 8 bits a channel in L or RGB, on white."""
    if not image.has_transparency_data:
        return image if image.mode in {"L", "RGB"} else image.convert("RGB")
    over = image if image.mode == "RGBA" else image.convert("RGBA")
    white = Image.new("RGB", over.size, "white")
    white.paste(over, mask=over.getchannel("A"))
    return white


def _rgb(image: Image.Image) -> Image.Image:
    """Return an image of at most PIXELS_KEPT in RGB."""
    while image.width * image.height > PIXELS_KEPT:
        image = image.reduce(2)
    return image.convert("RGB")


class Decoder:
    """The child process, as the process sees it that starts it at the first file."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Let the next file start a child process; one that runs belongs to another process."""
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None

    def decode(self, path: Path, window: Window) -> Decoded:
        """Return a decoded image; see `decode`."""
        asked = json.dumps([str(path.absolute()), window]).encode()
        with self._turn:
            for _ in range(2):  # the child may have ended, for it was idle
                with contextlib.suppress(EOFError, ConnectionError):
                    return self._ask(asked)
                self.stop()
        raise Unusable("its decoder ended without a word: the file is damaged, or made to do so")

    def _ask(self, asked: bytes) -> Decoded:
        if self._line is None:
            self._start()
        assert self._line is not None
        self._line.send_bytes(asked)
        if not self._line.poll(TIME_S):
            self.stop()
            raise Unusable(f"decoding it takes more than {TIME_S:.0f} s")
        kind, *told = json.loads(self._line.recv_bytes())
        if kind != "image":
            number, text = told
            raise OSError(number, text) if number else KINDS.get(kind, ValueError)(text or kind)
        size, frames, patient = told
        image = Image.frombytes("RGB", tuple(size), self._line.recv_bytes())
        return Decoded(image, frames, patient)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fednode.data.decode", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={
                    **{key: text for key, text in os.environ.items() if not key.startswith(OURS)},
                    "OPENBLAS_NUM_THREADS": "1",
                },
            )
        self._line = Connection(ours.detach())

    def stop(self) -> None:
        """End the child process if there is one; the next file starts another."""
        if self._line is not None and self._process is not None:
            self._line.close()
            self._process.kill()
            self._process.wait()
        self._line = self._process = None


DECODER: Final = Decoder()
atexit.register(DECODER.stop)
os.register_at_fork(after_in_child=DECODER.forget)


def serve(line: Connection) -> None:
    """Decode files for as long as they are asked for, and there is memory left for any."""
    most = _memory_bytes() + MEMORY // 4
    while _memory_bytes() <= most and line.poll(IDLE_S):
        path, window = json.loads(line.recv_bytes())
        try:
            found = decode_file(Path(path), window and tuple(window))
            told = "image", found.image.size, found.frames, found.patient
            pixels = found.image.tobytes()
        except Exception as fault:
            line.send_bytes(json.dumps(_describe(fault)).encode())
        else:
            line.send_bytes(json.dumps(told).encode())
            line.send_bytes(pixels)
            del found, pixels
        trim()


def _describe(fault: Exception) -> tuple[str, int, str]:
    """Return the kind of a fault, the system's number of the fault behind it or 0, and its text."""
    known = isinstance(fault, Unusable)
    cause = fault if known else system_fault(fault) or fault
    if isinstance(cause, OSError) and cause.errno is not None:
        return "OSError", cause.errno, cause.strerror or str(cause)
    return type(cause).__name__, 0, str(cause)


def _memory_bytes() -> int:
    """Return the bytes of this process's addresses; 0 where that is not known."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[0]) * resource.getpagesize() if status.exists() else 0


def _limit_memory() -> None:
    """Limit the memory of this process to what it has and MEMORY, on Linux."""
    if held := _memory_bytes():
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))


def main() -> None:
    """Serve the process at the other end of the descriptor that the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process that started it
    warnings.simplefilter("ignore")  # decoders warn about unusual metadata; only errors count
    Image.init()
    _limit_memory()
    with contextlib.suppress(EOFError, ConnectionError), Connection(int(sys.argv[1])) as line:
        serve(line)


if __name__ == "__main__":
    main()
