"""A tracker without a program of others: it writes each run as lines of JSON, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednode.lab.track.base import Run


class FakeTracker:
    """See Tracker. The run is <folder>/<run>.jsonl; a line is a list of a word and what it took."""

    def __init__(self, run: Run) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self._file = run.folder / f"{run.slug}.jsonl"
        self._closed = False
        self._write("begin", run.name, run.group, dict(run.settings))

    @property
    def where(self) -> str:
        """Path of the file."""
        return str(self._file)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write the figures of a step."""
        self._write("log", step, dict(values))

    def table(self, path: Path) -> None:
        """Write the name and the text of a file."""
        self._write("table", path.name, path.read_text("utf-8"))

    def close(self) -> None:
        """Write that the run ended."""
        if not self._closed:
            self._closed = True
            self._write("end")

    def _write(self, *parts: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(parts) + "\n")
