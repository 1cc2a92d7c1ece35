"""Notice between rounds that a folder of images has changed, and load it again."""

from __future__ import annotations

import contextlib
import os

from fednode.data.base import BUILTIN, DataSettings, NodeData
from fednode.data.images import Cache
from fednode.data.load import load
from fednode.errors import DataError

Signature = frozenset[tuple[str, int, int]]


class Rescan:
    """Compare the times of the class folders, which change whenever a file is added or deleted.

    The cost is one `stat` per class, however many images there are. Files that could not be read at
    the last load are compared, too, so an image that was still being copied is used once it is
    complete.
    """

    def __init__(self, settings: DataSettings, cache: Cache | None, data: NodeData) -> None:
        self._settings = settings
        self._cache = cache
        self._data = data
        self._seen = self._signature()
        self.fault = ""
        """Why the images of an earlier load are still in use; empty if they are current."""

    def look(self) -> NodeData | None:
        """Return the new splits if something changed since the last call, else None."""
        found = self._signature()
        if found == self._seen:
            return None
        self._seen = found
        try:
            self._data = load(self._settings, self._cache)
        except DataError as fault:
            self.fault = f"{fault} The images of the last good look are used."
            return None
        self.fault, self._seen = "", self._signature()
        return self._data

    def _signature(self) -> Signature:
        if self._settings.path == BUILTIN:
            return frozenset()
        watched = [self._settings.path, *(str(path) for path, _ in self._data.skipped)]
        watched += map(str, self._data.watched)
        with contextlib.suppress(OSError), os.scandir(self._settings.path) as entries:
            watched += [entry.path for entry in entries if entry.is_dir()]
        found: set[tuple[str, int, int]] = set()
        for path in watched:
            with contextlib.suppress(OSError):  # deleted meanwhile: then it is missing here
                stat = os.stat(path)
                found.add((path, stat.st_mtime_ns, stat.st_size))
        return frozenset(found)
