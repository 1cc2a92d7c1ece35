"""A disk that stops at a chosen call, as a killed process, a torn write or a power cut would."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Literal

from fednode.storage.disk import Disk

Way = Literal["killed", "torn", "power cut", "full", "read-only"]


class Crash(BaseException):
    """The process would be gone from here on."""


class FailingDisk(Disk):
    """Count changes; let number `fail_at` (from 0) fail in one of these ways.

    killed: nothing happens from that call on. torn: half of a write happens first. power cut: what
    was not synced is lost, too. full: that one call fails for want of room, later ones work.
    read-only: that call and all later ones fail.
    """

    def __init__(self, fail_at: int = -1, way: Way = "killed") -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at
        self._way = way
        self._crashed = False
        self._unsynced: dict[Path, int] = {}  # the size of what was synced before
        self._unnamed: list[tuple[Path, bytes | Path | None]] = []

    @property
    def failed(self) -> bool:
        """Tell whether the chosen call was reached."""
        return 0 <= self._fail_at < len(self.calls)

    def make_folder(self, path: Path) -> None:
        self._enter("make_folder")
        super().make_folder(path)

    def create(self, path: Path, kept: int = 0, mode: int = 0o600) -> int:
        self._enter("create")
        self._unsynced[path] = kept
        return super().create(path, kept, mode)

    def write(self, descriptor: int, data: memoryview) -> int:
        try:
            self._enter("write")
        except Crash:
            if self._way == "torn":
                super().write(descriptor, data[: len(data) // 2])
            raise
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._enter("sync")
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._unsynced.pop(path, None)
        self._unnamed = [one for one in self._unnamed if one[0].parent != path]
        # The bookkeeping above stands for the sync itself, which would only cost time.

    def rename(self, old: Path, new: Path) -> None:
        self._enter("rename")
        before = old if old.is_dir() else new.read_bytes() if new.exists() else None
        self._unnamed.append((new, before))
        if old in self._unsynced:
            self._unsynced[new] = self._unsynced.pop(old)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._enter("remove")
        super().remove(path)

    def _enter(self, call: str) -> None:
        if self._crashed:
            raise Crash
        self.calls.append(call)
        if self._way == "read-only" and self.failed:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if len(self.calls) - 1 != self._fail_at:
            return
        if self._way == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._crashed = True
        if self._way == "power cut":
            self._lose()
        raise Crash

    def _lose(self) -> None:
        for path, kept in self._unsynced.items():
            if path.exists():
                os.truncate(path, kept + (path.stat().st_size - kept) // 2)
        for path, before in reversed(self._unnamed):
            if isinstance(before, Path):
                path.rename(before)
            elif before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)
