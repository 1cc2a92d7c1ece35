"""Notice between rounds that a folder of images has changed, and load it anew."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from node.data.base import DataSettings, NodeData
from node.data.load import BUILTIN, load
from node.errors import DataError

Signature = frozenset[tuple[str, int, int]]


class Rescan:
    """Look at a folder's class folders, whose time changes with every file that comes or goes.

    That is one look for each class, however many images there are. Files that could not be read at
    the last load are looked at too: one that was still being copied is taken when it is whole.
    """

    def __init__(self, settings: DataSettings, memory: Path | None, data: NodeData) -> None:
        self._settings = settings
        self._memory = memory
        self._data = data
        self._seen = self._signature()
        self.fault = ""
        """Why the images of an earlier look are still the ones to use; empty where they are not."""

    def look(self) -> NodeData | None:
        """Return the new splits where something changed since the last look, else None."""
        found = self._signature()
        if found == self._seen:
            return None
        self._seen = found
        try:
            self._data = load(self._settings, self._memory)
        except DataError as fault:
            self.fault = f"{fault} The images of the last good look are used."
            return None
        self.fault, self._seen = "", self._signature()
        return self._data

    def _signature(self) -> Signature:
        if self._settings.path == BUILTIN:
            return frozenset()
        watched = [self._settings.path, *(str(path) for path, _ in self._data.skipped)]
        with contextlib.suppress(OSError), os.scandir(self._settings.path) as entries:
            watched += [entry.path for entry in entries if entry.is_dir()]
        found: set[tuple[str, int, int]] = set()
        for path in watched:
            with contextlib.suppress(OSError):  # gone meanwhile: then it is missing here
                stat = os.stat(path)
                found.add((path, stat.st_mtime_ns, stat.st_size))
        return frozenset(found)
