"""peers.yaml, read again after it changes."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fednode.settings.peers import Peers, load_peers

Mark = tuple[int, int, int] | None
"""Time of change, size and number of a file; None if there is no file."""


class PeersFile:
    """A peers.yaml that is looked at now and then, by one thread at a time."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._mark: Mark = None
        self._read: tuple[Mark] | None = None  # the mark of what was read last
        self._content: bytes | None = None

    def look(self) -> Peers | None:
        """Return the content if it is new; raise ConfigError, once each, if it is wrong.

        The first content is new. None: nothing is new, or the file has changed since the last look,
        so that it may still be written.
        """
        before, self._mark = self._mark, _mark(self.place)
        if self._mark != before or self._read == (before,):
            return None
        content = b""
        with contextlib.suppress(OSError):  # load_peers has a sentence for it
            content = self.place.read_bytes()
        self._read = (before,)
        if content == self._content:
            return None
        self._content = content
        return load_peers(self.place)


def _mark(file: Path) -> Mark:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
