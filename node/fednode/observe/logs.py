"""The log: lines for people on a terminal, JSON elsewhere, and a file of bounded size."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from fednode.core import foreign
from fednode.core.events import Record
from fednode.settings.output import LogSettings

FILE: Final = "fednode.log"
MB: Final = 1_000_000


class Text(logging.Formatter):
    """A line for people; a traceback may follow it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, made safe to show."""
        return foreign.line(super().formatMessage(record), most=None)


class Json(logging.Formatter):
    """One JSON object per line: time, level, mesh, node, event, text, and the record's fields."""

    def __init__(self, mesh: str, node: str) -> None:
        super().__init__()
        self._base = {"mesh": mesh, "node": node}
        self._last: tuple[logging.LogRecord | None, str] = None, ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its line end; two handlers in turn get the same line."""
        held, line = self._last
        if held is not record:
            line = self._line(record)
            self._last = record, line
        return line

    def _line(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        told = getattr(record, "record", None)
        about = dict(told.fields) if isinstance(told, Record) else {}
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._base,
            "event": told.kind if isinstance(told, Record) else "log",
            "text": record.getMessage(),
            **{f"about_{key}" if key in RESERVED else key: one for key, one in about.items()},
        }
        return foreign.line(json.dumps(line, ensure_ascii=False, default=str), most=None)


RESERVED: Final = frozenset({"time", "level", "mesh", "node", "event", "text"})


class _File(RotatingFileHandler):
    """A log file that loses lines, and does nothing else, if the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing about a line that could not be written."""


def begin(settings: LogSettings, mesh: str, node: str, state: Path) -> None:
    """Show fednode's own log lines. Libraries use the root logger, which stays quiet."""
    ours = logging.getLogger("fednode")
    ours.setLevel(settings.level.upper())
    shown = logging.StreamHandler()
    people = settings.format == "text" or (settings.format == "auto" and sys.stderr.isatty())
    lines = Json(mesh, node)
    text = Text("%(asctime)s %(message)s", datefmt="%H:%M:%S")
    shown.setFormatter(text if people else lines)
    ours.addHandler(shown)
    if settings.file_mb:
        size = int(settings.file_mb * MB)
        kept = _File(state / FILE, maxBytes=size, backupCount=1, encoding="utf-8", delay=True)
        kept.setFormatter(lines)
        ours.addHandler(kept)
    ours.propagate = False
    logging.getLogger().addHandler(logging.NullHandler())
