"""A node as a run in an experiment tracker, and the option `--tracker`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import click

from fednode.app.plan import NodePlan
from fednode.core.events import Level, Record
from fednode.errors import StateError
from fednode.lab.track.base import Run, flat
from fednode.lab.track.names import figures
from fednode.lab.track.tracking import CLOSE_S, Kind, Shipped, Tracking, shipped
from fednode.learn.figures import csv_table
from fednode.observe.events import Events
from fednode.storage.files import put
from fednode.storage.store import read_history

ROUNDS_MAX: Final = 100_000
"""Most rounds in the table, as many as the journal keeps."""
ROUNDS: Final = "rounds.csv"
Command = TypeVar("Command", bound=Callable[..., Any])


def tracker_option(command: Command) -> Command:
    """Add `--tracker tensorboard|wandb|mlflow` to a command, which gets its name or None."""
    return click.option(
        "--tracker",
        type=click.Choice(get_args(Kind)),
        help="Pass figures on to an experiment tracker (docs/trackers.md).",
    )(command)


class NodeTracking:
    """One node's run, from `begin` until `close`."""

    def __init__(self, tracker: Shipped, plan: NodePlan, events: Events) -> None:
        settings = plan.settings
        chosen = settings.tracker
        open_ = replace(settings, token=None, page=replace(settings.page, token=None))
        self._run = Run(
            name=plan.name,
            group=chosen.group or plan.peers.mesh,
            folder=Path(chosen.folder).expanduser() if chosen.folder else plan.state / "tracker",
            settings={**flat(asdict(open_)), "rounds.mode": plan.mode},
        )
        self._tracker, self._state, self._events = tracker, plan.state, events
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tracking: Tracking | None = None

    def begin(self) -> None:
        """Begin the run, or continue it after a restart."""
        self._loop = asyncio.get_running_loop()
        self._tracking = Tracking(
            self._tracker,
            say=lambda text: self._tell("tracker.ready", text, "info"),
            warn=lambda text: self._tell("tracker.failed", text, "warning"),
        )
        self._tracking.begin(self._run)

    def adopted(
        self, number: int, metrics: Mapping[str, float], traffic: Mapping[str, int]
    ) -> None:
        """Pass on the figures of a round."""
        if self._tracking is not None:
            self._tracking.log(number, figures(metrics, traffic))

    async def close(self) -> None:
        """Pass on the table of all rounds and end the run, within CLOSE_S. Idempotent."""
        tracking, self._tracking = self._tracking, None
        if tracking is not None:
            table = await asyncio.to_thread(self._table)
            if table is not None:
                tracking.table(table)
            await asyncio.to_thread(tracking.close, CLOSE_S)

    def _tell(self, kind: str, text: str, level: Level) -> None:
        """Record a sentence from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._events.record, Record(kind, text, level))

    def _table(self) -> Path | None:
        """Write the journal's rounds as a table; None if that fails, which harms no round."""
        try:
            rows = read_history(self._state, ROUNDS_MAX)
            lines = [(row.round, figures(row.metrics, row.traffic)) for row in rows]
            names = sorted({name for _, values in lines for name in values})
            table: list[list[Any]] = [["round", *names]]
            table += [
                [number, *(values.get(name, "") for name in names)] for number, values in lines
            ]
            put(self._state / ROUNDS, csv_table(table), "state directory")
        except StateError:
            return None
        return self._state / ROUNDS


def tracked_of(plan: NodePlan, events: Events) -> NodeTracking | None:
    """Return the run of a node; None if no tracker is set.

    Raise ConfigError if the tracker's package is not installed.
    """
    kind = plan.settings.tracker.kind
    return None if kind is None else NodeTracking(shipped(kind), plan, events)
