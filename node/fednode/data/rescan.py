"""Notice between rounds that a folder of images has changed, and load it again.

The load runs on a thread of its own. A round waits for it a moment only, so many large images that
appear at once delay no round: until they are loaded, rounds go on with the images before them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final

from fednode.data.base import BUILTIN, DataSettings, NodeData
from fednode.data.files import opened
from fednode.data.images import UNREAD, Cache
from fednode.data.load import load
from fednode.data.pixels import Unusable
from fednode.errors import DataError

Signature = frozenset[tuple[str, int, int, bool]]
WAIT_S: Final = 2.0
"""How long a round waits for a load under way; most changes are a few small images."""


def _load_in_background(settings: DataSettings, cache: Cache | None) -> Future[NodeData]:
    """Load on a thread that does not keep the process from ending."""
    loading: Future[NodeData] = Future()

    def run() -> None:
        try:
            loading.set_result(load(settings, cache))
        except Exception as fault:
            loading.set_exception(fault)

    threading.Thread(target=run, name="rescan", daemon=True).start()
    return loading


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
        self._loading: Future[NodeData] | None = None
        self.fault = ""
        """Why the images of an earlier load are still in use; empty if they are current."""

    def look(self, wait_s: float = WAIT_S) -> NodeData | None:
        """Return the new splits if something changed since the last call, else None.

        A load that takes longer than wait_s goes on; a later call returns its splits.
        """
        if self._loading is None:
            signature = self._signature()
            if signature == self._seen:
                return None
            self._seen = signature
            self._loading = _load_in_background(self._settings, self._cache)
        loading = self._loading
        wait([loading], wait_s)
        if not loading.done():
            self.fault = "New images are being examined; until then those of before are used."
            return None
        self._loading, self.fault = None, ""
        try:
            self._data = loading.result()
        except DataError as fault:
            self.fault = f"{fault} The images of the last good look are used."
            return None
        self._seen = self._settled()
        return self._data

    def _settled(self) -> Signature:
        """Return the signature after a load; an empty one if files changed while it ran."""
        now, before = self._signature(), {path: rest for path, *rest in self._seen}
        moved = any(before.get(path, rest) != rest for path, *rest in now)
        return frozenset() if moved else now

    def _signature(self) -> Signature:
        if self._settings.path == BUILTIN:
            return frozenset()
        watched = [self._settings.path, *(str(path) for path, _ in self._data.skipped)]
        watched += map(str, self._data.watched)
        with contextlib.suppress(OSError), os.scandir(self._settings.path) as entries:
            watched += [entry.path for entry in entries if entry.is_dir()]
        unread = {str(path) for path, why in self._data.skipped if why.startswith(UNREAD)}
        files: set[tuple[str, int, int, bool]] = set()
        for path in watched:
            with contextlib.suppress(OSError):  # deleted meanwhile: then it is missing here
                stat = os.stat(path)
                reads = path not in unread or _reads(Path(path))
                files.add((path, stat.st_mtime_ns, stat.st_size, reads))
        return frozenset(files)


def _reads(path: Path) -> bool:
    """Tell whether a file that could not be read can be read now."""
    try:
        with opened(path) as file:
            return bool(file.read(1))
    except (OSError, Unusable):
        return False
