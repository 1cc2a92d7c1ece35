"""Decode an image file of any kind to 8-bit RGB (formats.py), with a limit of memory and time.

A small file can stand for an image, or tags, of gigabytes, and decoders do not say beforehand what
they will take. JPEG and PNG files of usual size are decoded in this process. All others are decoded
by a child process, one after the other. Its memory is limited by the system (RLIMIT_AS, on Linux).
It ends by itself when nothing was asked for IDLE_S, and with the process that started it.
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from PIL import Image, UnidentifiedImageError

from fednode.data import formats
from fednode.data.files import opened, system_fault
from fednode.data.formats import MEMORY, PIXELS_KEPT, decode_file
from fednode.data.pixels import Decoded, Unusable, Window
from fednode.freed import trim

VERSION: Final = 2
"""Version of the decoder. Raise it if any file's pixels change, so that no cache mixes both."""
USUAL: Final = ("JPEG", "PNG")
USUAL_BYTES: Final = 16 << 20
"""The largest file that is decoded in this process, if its image has at most PIXELS_KEPT."""
SMALL_PIXELS: Final = 4_000_000
LARGE: Final = threading.BoundedSemaphore(2)
"""So many images of more than SMALL_PIXELS are decoded at a time."""
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
def decode(path: Path, side: int | None = None, window: Window = None) -> Iterator[Decoded]:
    """Decode a file, upright by its EXIF orientation; its memory is freed behind the block.

    Of several frames take the first, of a DICOM file the middle one. An image of more than
    PIXELS_KEPT is halved until it has fewer.

    side: decode a JPEG at a reduced size not below side x side, which is faster. window: of images
    with more than 8 bits and of DICOM files. Raise Unusable, MemoryError, or the decoder's error if
    the file is damaged or no image, usually OSError.
    """
    with ExitStack() as held:
        found = _decode_usual(path, side, window, held)
        if found is None:
            held.enter_context(LARGE)
            found = DECODER.decode(path, side, window)
        held.callback(found.image.close)  # before the turn of another
        yield found


def _decode_usual(path: Path, side: int | None, window: Window, held: ExitStack) -> Decoded | None:
    """Decode a JPEG or PNG of usual size; return None for all others.

    held: gets what is to be given back.
    """
    with opened(path) as file:
        usual = file.peek(8).startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))
        if not usual or os.fstat(file.fileno()).st_size > USUAL_BYTES:
            return None
        with Image.open(file, formats=USUAL) as image:
            pixels = image.width * image.height
            if pixels > PIXELS_KEPT:
                return None
            if pixels > SMALL_PIXELS:
                held.enter_context(LARGE)
                held.callback(trim)
            return formats.decode_image(image, side, window)


class Decoder:
    """The child process, as the process sees it that starts it at the first file."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Let the next file start a child process; one that runs belongs to another process."""
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None

    def decode(self, path: Path, side: int | None, window: Window) -> Decoded:
        """Return a decoded image; see `decode`."""
        asked = json.dumps([str(path.absolute()), side, window]).encode()
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
        size, frames, patient, whole = told
        image = Image.frombytes("RGB", tuple(size), self._line.recv_bytes())
        return Decoded(image, frames, patient, whole)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fednode.data.decode", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
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
        path, side, window = json.loads(line.recv_bytes())
        try:
            found = decode_file(Path(path), side, window and tuple(window))
            told = "image", found.image.size, found.frames, found.patient, found.whole
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
