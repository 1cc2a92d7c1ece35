"""Notice between rounds that a folder of images has changed, and load it again.

The load runs on a thread of its own. A round waits for it a moment only, so many large images that
appear at once delay no round: until they are loaded, rounds go on with the images before them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final

from fednode.data.base import BUILTIN, DataSettings, NodeData
from fednode.data.images import UNREAD, Cache
from fednode.data.load import load
from fednode.errors import DataError

Signature = frozenset[tuple[Path, int, int]]
WAIT_S: Final = 2.0
"""How long a round waits for a load under way; most changes are a few small images."""
RETRY_S: Final = 60.0


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
    """Compare the times of all folders with images, which change if a file is added or deleted.

    The cost is one `stat` per folder, however many images there are. Skipped files are compared,
    too, so an image that was still being copied is used once it is complete. What could not be read
    is tried again after RETRY_S.
    """

    def __init__(self, settings: DataSettings, cache: Cache | None, data: NodeData) -> None:
        self._settings = settings.placed()
        self._cache = cache
        self._watch(data)
        self._seen, self._loaded_at = self._signature(), time.monotonic()
        self._loading: Future[NodeData] | None = None
        self.fault = ""
        """Why the images of an earlier load are still in use; empty if they are current."""

    def look(self, wait_s: float = WAIT_S) -> NodeData | None:
        """Return the new splits if something changed since the last call, else None.

        A load that takes longer than wait_s goes on; a later call returns its splits.
        """
        if self._loading is None:
            signature, now = self._signature(), time.monotonic()
            unread = self.fault or any(why.startswith(UNREAD) for _, why in self._data.skipped)
            due = unread and now >= self._loaded_at + RETRY_S
            if signature == self._seen and not due:
                return None
            self._seen, self._loaded_at = signature, now
            self._loading = _load_in_background(self._settings, self._cache)
        loading = self._loading
        wait([loading], wait_s)
        if not loading.done():
            self.fault = "New images are being examined; until then those of before are used."
            return None
        self._loading, self.fault = None, ""
        try:
            data = loading.result()
        except DataError as fault:
            self.fault = f"{fault} The images of the last good look are used."
            return None
        same = data == self._data
        self._watch(data)
        return None if same else data

    def _watch(self, data: NodeData) -> None:
        """Store splits, and all folders and files whose times change if the images do."""
        self._data, self._watched = data, set[Path]()
        if self._settings.path == BUILTIN:
            return
        root = Path(self._settings.path)
        self._watched = {Path(folder) for folder, _, _ in os.walk(root)}
        self._watched |= {path.parent for path in data.files}  # links are not walked
        self._watched |= {path for path, _ in data.skipped}
        if self._settings.table:
            self._watched.add(Path(self._settings.table))
        with contextlib.suppress(OSError):
            self._watched |= set(root.iterdir())  # a split file

    def _signature(self) -> Signature:
        """Return the times and sizes of what is watched."""
        files: set[tuple[Path, int, int]] = set()
        for path in self._watched:
            with contextlib.suppress(OSError):  # deleted meanwhile: then it is missing here
                stat = path.stat()
                files.add((path, stat.st_mtime_ns, stat.st_size))
        return frozenset(files)
