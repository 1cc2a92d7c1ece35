"""Claims: a worker that runs a cell has a file beside the cell's file, so that no other runs it.

The folder of an experiment may be shared by many machines; it is their queue. Creating a claim is
exclusive on every file system, network file systems included (O_EXCL). The holder renews the time
of its claim every RENEW_S. A claim that was not renewed for EXPIRE_S has expired. Claims on one
cell are numbered. The worker that creates claim number n + 1 takes over from number n, and only one
worker can create it. All times are the file system's, so clocks of machines may differ.

A worker that was stopped for longer than EXPIRE_S may go on and finish a cell that another worker
has taken over. This does no harm, because both write files with equal figures.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fednode.errors import StateError

RENEW_S: Final = 30.0
EXPIRE_S: Final = 120.0
"""More than twice RENEW_S: a network file system may show a time that is a minute old."""
UNKNOWN: Final = "a worker that has not written its name yet"
Clock = Callable[[Path], float]
_held: set[Claim] = set()
"""The claims of this process."""


def clock(folder: Path) -> float:
    """Return the time that the file system of a folder gives to a file now, in seconds."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        os.utime(probe.fileno())
        return os.fstat(probe.fileno()).st_mtime


class Claim:
    """A claim that this process holds. A thread renews it until it is released."""

    def __init__(self, cell: Path, number: int) -> None:
        """Take the path of the cell's file and the number of the claim."""
        self._cell, self._number = cell, number
        self._lock = threading.RLock()  # a signal's handler may release what is being released
        self._released = threading.Event()

    def keep(self) -> None:
        """Renew the claim every RENEW_S from now on, in a thread."""
        _held.add(self)
        threading.Thread(target=self._renew_until_released, daemon=True).start()

    def renew(self) -> bool:
        """Set the claim's time to now; return False if it is released or another has taken over."""
        with self._lock:
            if self._released.is_set() or _path(self._cell, self._number + 1).exists():
                return False
            try:
                os.utime(_path(self._cell, self._number))
            except FileNotFoundError:
                return False
            except OSError:
                pass  # the network may be back before the claim expires
            return True

    def release(self) -> None:
        """Remove this claim and the expired ones before it, unless another has taken over."""
        with self._lock:
            _held.discard(self)
            self._released.set()
            if _path(self._cell, self._number + 1).exists():
                return
            for number in range(1, self._number + 1):  # the last one guards the others
                with contextlib.suppress(OSError):
                    _path(self._cell, number).unlink(missing_ok=True)

    def _renew_until_released(self) -> None:
        while not self._released.wait(RENEW_S):
            if not self.renew():
                return


def take(cell: Path, clock: Clock = clock) -> Claim | None:
    """Return a claim on a cell, or None if another worker holds it.

    cell: path of the cell's file; its folder exists. The caller must look for that file once more
    after this call, because the last holder may have finished it. Raise StateError if the folder
    cannot be written.
    """
    with _usable(cell.parent):
        number, _, renewed = _last(cell)
        if number and not _expired(renewed, clock(cell.parent)):
            return None
        mine = _path(cell, number + 1)
        try:
            with mine.open("x", encoding="utf-8") as file:
                file.write(f"{socket.gethostname()}:{os.getpid()}")
        except FileExistsError:
            return None
        if _last(cell)[0] != number + 1:  # claims before it were released meanwhile
            mine.unlink(missing_ok=True)
            return None
    claim = Claim(cell, number + 1)
    claim.keep()
    return claim


def holder(cell: Path, clock: Clock = clock) -> str:
    """Return which worker (HOST:PROCESS) holds a claim on a cell; "" if nobody does.

    Raise StateError if the folder cannot be read or written.
    """
    with _usable(cell.parent):
        number, name, renewed = _last(cell)
        if not number or _expired(renewed, clock(cell.parent)):
            return ""
        return name or UNKNOWN


def release_all() -> None:
    """Release the claims of this process, which is about to end."""
    for claim in list(_held):
        claim.release()


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Raise StateError in place of errors of the system."""
    try:
        yield
    except OSError as fault:
        raise StateError(
            f"Claims in {folder} cannot be read and written: {fault.strerror}; free space there, "
            "let this user write there, or choose another folder with --out."
        ) from fault


def _path(cell: Path, number: int) -> Path:
    return cell.with_name(f"{cell.name}.claim-{number}")


def _last(cell: Path) -> tuple[int, str, float]:
    """Return number, holder and time of the last claim on a cell; number 0 if there is none."""
    number, name, renewed = 0, "", 0.0
    while True:
        try:
            with _path(cell, number + 1).open(encoding="utf-8") as file:
                # An opened file's time is the server's, and no copy of this machine's.
                name, renewed = file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return number, name, renewed
        number += 1


def _expired(renewed: float, now: float) -> bool:
    """Tell whether a claim has expired; a time far in the future is one of a clock set back."""
    return abs(now - renewed) > EXPIRE_S
