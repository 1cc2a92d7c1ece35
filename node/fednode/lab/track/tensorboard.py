"""TensorBoard: event files in <folder>/<run>, written by tensorboardX."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tensorboardX import SummaryWriter

from fednode.lab.track.base import Run, forget

TEXT_MAX: Final = 100_000
"""Most characters of a table; TensorBoard shows a table as text."""


class TensorBoard:
    """See Tracker. Settings and tables are texts at step 0."""

    def __init__(self, run: Run) -> None:
        self._folder = run.folder
        if not (run.folder / run.slug).exists():
            forget(run, "tensorboardX")
        # Files are named by the second, and a second start within it would write over the first.
        suffix = f".{time.time_ns()}"
        self._writer = SummaryWriter(str(run.folder / run.slug), filename_suffix=suffix)
        lines = [f"    {name}: {value}" for name, value in sorted(run.settings.items())]
        self._writer.add_text("settings", "\n".join([f"    group: {run.group}", *lines]), 0)
        self._writer.flush()

    @property
    def where(self) -> str:
        """How to look at the run."""
        return f"tensorboard --logdir {self._folder}"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write each figure as a scalar of the step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def table(self, path: Path) -> None:
        """Write the file's text, with four spaces before each line, so that it stays as it is."""
        text = path.read_text("utf-8", errors="replace")[:TEXT_MAX]
        kept = (
            text if path.suffix == ".md" else "\n".join(f"    {line}" for line in text.splitlines())
        )
        self._writer.add_text(path.name, kept, 0)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
