"""The leases of other members that a node has seen, in a file, so that it finds them again.

A relay calls nodes by their ids. A member without an id in peers.yaml shows it with its lease; if
all nodes of a mesh restart at once, nobody shows anything before somebody is called. The file holds
a proof in each line. Nobody needs to trust the file: each proof is checked again when it is read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from fednode.errors import IdentityError, StateError
from fednode.identity.identity import ELSEWHERE
from fednode.identity.lease import armour, disarm
from fednode.storage.files import put

LINES_MAX: Final = 1 << 14
"""Leases that one process writes at most; a lease has up to 1.4 kB."""
LOG: Final = logging.getLogger("fednode")


class Seen:
    """A file of leases, to which a running node adds each new lease."""

    def __init__(self, file: Path) -> None:
        """Set up; nothing is read or written yet."""
        self._file, self._left, self._sorted = file, LINES_MAX, False

    def proofs(self) -> Iterator[bytes]:
        """Return the proofs in the file; lines that hold none are left out."""
        with contextlib.suppress(OSError):
            for line in self._file.read_bytes().splitlines()[: 2 * LINES_MAX]:
                with contextlib.suppress(IdentityError, UnicodeDecodeError):
                    yield disarm(line.decode("ascii"))

    def add(self, proof: bytes, is_kept: Callable[[bytes], bool]) -> None:
        """Append a proof. If it cannot be written, a relay may not be asked for it later.

        is_kept: tells whether a proof stays. The first call of a process writes the file anew, with
        those that stay; before it the file is only read, because the clock may be wrong.
        """
        if not self._left:
            return
        self._left -= 1
        if not self._sorted:
            self._sorted = True
            self._write([*filter(is_kept, self.proofs()), proof])
            return
        with contextlib.suppress(OSError), self._file.open("a", encoding="ascii") as file:
            file.write(f"{armour(proof)}\n")

    def _write(self, proofs: Iterable[bytes]) -> None:
        try:
            put(self._file, "".join(f"{armour(proof)}\n" for proof in proofs), ELSEWHERE)
        except StateError as fault:
            LOG.warning("Members' leases are not kept: %s", fault)
