"""The process in which a tracker runs: `python -m fednode.lab.track.worker MODULE:CLASS`.

It reads one JSON array per line from standard input (node/fednode/lab/track/tracking.py writes
them), and writes one JSON object per line to standard output: {"where": ...} or {"fault": ...}. A
tracker that raises is told of once for each run; the lines after that go on. The process ends the
run and itself when its input ends, and at the latest ORPHAN_S later.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TextIO

from fednode.core import foreign
from fednode.lab.track.base import Run, Tracker

ORPHAN_S: Final = 60
"""Seconds to end the run after the input ended. A node that lives ends the process earlier."""
NICE: Final = 5
"""The process gives way to the node's own work."""


class Worker:
    """Pass lines on to a tracker. out: gets the answers."""

    def __init__(self, kind: type[Tracker], out: TextIO) -> None:
        self._kind, self._out = kind, out
        self._tracker: Tracker | None = None
        self._told = False

    def work(self, lines: Iterable[str]) -> None:
        """Take all lines, then end the run."""
        for line in lines:
            word, *rest = json.loads(line)
            self._careful(word, rest)
        self._careful("end", [])

    def _careful(self, word: str, rest: list[Any]) -> None:
        """Take one line; a tracker may raise anything, `SystemExit` too."""
        try:
            self._take(word, rest)
        except BaseException as fault:
            if not self._told:
                self._told = True
                text = foreign.line(f"{type(fault).__name__}: {fault}")
                self._answer({"fault": text})

    def _take(self, word: str, rest: list[Any]) -> None:
        if word == "begin":
            self._told = False
            (tree,) = rest
            self._tracker = self._kind(Run(**{**tree, "folder": Path(tree["folder"])}))
            self._answer({"where": foreign.line(self._tracker.where)})
        elif self._tracker is not None and word == "log":
            step, values = rest
            self._tracker.log(step, values)
        elif self._tracker is not None and word == "table":
            (path,) = rest
            self._tracker.table(Path(path))
        elif self._tracker is not None:
            tracker, self._tracker = self._tracker, None
            tracker.close()

    def _answer(self, answer: dict[str, str]) -> None:
        with contextlib.suppress(OSError):  # the node is gone
            self._out.write(json.dumps(answer) + "\n")
            self._out.flush()


def main(place: str) -> None:
    """Run the tracker that is named MODULE:CLASS until standard input ends."""
    # The node says when to end, by the end of the input; signals to the whole service do not.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICE)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 1)  # what a tracker prints is for nobody
        os.dup2(nothing.fileno(), 2)
    try:
        module, name = place.split(":")
        kind = getattr(importlib.import_module(module), name)
    except Exception as fault:
        out.write(json.dumps({"fault": foreign.line(f"{type(fault).__name__}: {fault}")}) + "\n")
        out.flush()
        return
    Worker(kind, out).work(_until_the_end(sys.stdin))
    out.flush()
    os._exit(0)  # threads and exit handlers of a tracker may wait for a network


def _until_the_end(lines: TextIO) -> Iterable[str]:
    yield from lines
    signal.alarm(ORPHAN_S)


if __name__ == "__main__":
    main(sys.argv[1])
