"""The log: lines for people on a terminal, JSON elsewhere, and a file of bounded size."""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, TextIO

from fednode.core import foreign
from fednode.core.events import Record
from fednode.core.rate_limit import TokenBuckets
from fednode.settings.output import LogSettings
from fednode.storage.disk import FILE_MODE

FILE: Final = "fednode.log"
LINES_BURST: Final = 1000
LINES_S: Final = 10.0
"""Lines on standard error: LINES_BURST at once, then so many a second. Nothing rotates it."""
FILE_BYTES: Final = 10_000_000
"""Size at which the log file is rotated; one older file is kept."""


class Text(logging.Formatter):
    """A line for people; a traceback may follow it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return foreign.line(super().formatMessage(record), most=None)


class Json(logging.Formatter):
    """One JSON object per line: time, level, mesh, node, event, text, and the record's fields."""

    def __init__(self, mesh: str, node: str) -> None:
        super().__init__()
        self._base = {"mesh": mesh, "node": node}

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        told = getattr(record, "record", None)
        about = dict(told.fields) if isinstance(told, Record) else {}
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._base,
            "event": told.kind if isinstance(told, Record) else "log",
            "text": record.getMessage(),
            **{f"about_{key}" if key in RESERVED else key: value for key, value in about.items()},
        }
        return foreign.line(json.dumps(line, ensure_ascii=False, default=str), most=None)


RESERVED: Final = frozenset({"time", "level", "mesh", "node", "event", "text"})


class _Shown(logging.StreamHandler[TextIO]):
    """Standard error, with few lines; the next line says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lines = clock, TokenBuckets(LINES_BURST, LINES_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record if there were not too many lately."""
        bucket = self._lines.of("", self._clock())
        if not bucket.take():
            return
        if bucket.refused:
            record = copy.copy(record)
            text = f"{record.getMessage()} ({bucket.refused} lines left out before)"
            record.msg, record.args, bucket.refused = text, None, 0
        super().emit(record)


class _File(RotatingFileHandler):
    """A log file for its owner alone that loses lines, and does nothing else, if the disk is full.

    It follows no link: another user may have made it.
    """

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.fdopen(os.open(self.baseFilename, flags, FILE_MODE), "ab")
        return TextIOWrapper(file, encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing about a line that could not be written."""


def begin(settings: LogSettings, mesh: str, node: str, state: Path) -> None:
    """Show fednode's own log lines. Libraries use the root logger, which stays quiet."""
    ours = logging.getLogger("fednode")
    ours.setLevel(settings.level.upper())
    shown = logging.StreamHandler() if settings.level == "debug" else _Shown()
    people = settings.format == "text" or (settings.format == "auto" and sys.stderr.isatty())
    lines = Json(mesh, node)
    text = Text("%(asctime)s %(message)s", datefmt="%H:%M:%S")
    shown.setFormatter(text if people else lines)
    ours.addHandler(shown)
    kept = _File(state / FILE, maxBytes=FILE_BYTES, backupCount=1, encoding="utf-8", delay=True)
    kept.setFormatter(lines)
    ours.addHandler(kept)
    ours.propagate = False
    logging.getLogger().addHandler(logging.NullHandler())
