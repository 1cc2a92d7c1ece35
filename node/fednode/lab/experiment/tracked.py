"""An experiment in a tracker: a run for each cell that ends, and a run with the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from fednode.lab.experiment.settings import Experiment
from fednode.lab.track.base import Run, flat
from fednode.lab.track.tracking import Shipped, Tracking
from fednode.learn.figures import mean

if TYPE_CHECKING:
    from fednode.lab.experiment.run import Done

FOLDER: Final = "tracker"
TABLES: Final = (
    *("report.md", "scores.csv", "curves.csv", "report.json"),
    *("classes.md", "classes.csv", "confusion.csv", "curves.png"),
)
CLOSE_S: Final = 60.0
"""Most seconds by which a tracker delays the end of an experiment."""
TOTALS: Final = ("messages", "payload", "serialized", "wire")


class Runs:
    """Pass cells on to a tracker; without a tracker, do nothing."""

    def __init__(self, tracking: Tracking | None, experiment: Experiment, folder: Path) -> None:
        self._tracking, self._experiment, self._folder = tracking, experiment, folder

    def note(self, done: Done) -> None:
        """Pass on a cell that this start of the command ran: its figures over the rounds."""
        if self._tracking is None or not done.fresh or not done.outcome:
            return
        cell = done.cell
        shared = asdict(self._experiment)
        for name in ("methods", "seeds", "smoke", "cache"):
            del shared[name]
        settings = {**flat(shared), **flat({"method": asdict(cell.method)}), "seed": cell.seed}
        self._begin(cell.title, {**settings, "left out": cell.target})
        for step, values in sorted(steps(done.outcome).items()):
            self._tracking.log(step, values)
        self._tracking.end()

    def tables(self) -> None:
        """Pass on the files that the experiment has written."""
        if self._tracking is None:
            return
        self._begin("tables", flat({**asdict(self._experiment), "smoke": None}))
        for name in TABLES:
            if (self._folder / name).is_file():
                self._tracking.table(self._folder / name)
        self._tracking.end()

    def _begin(self, name: str, settings: Mapping[str, Any]) -> None:
        assert self._tracking is not None, "only with a tracker"
        folder = self._folder.resolve() / FOLDER
        group = self._experiment.title
        self._tracking.begin(Run(name=name, group=group, folder=folder, settings=settings))


def steps(outcome: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return the figures of a cell by round: accuracies (0..1, mean over nodes), loss, distance.

    The last round also has the bytes of the whole run, of all nodes, without greetings. A method
    that learns nothing has its accuracies at round 0.
    """
    last = int(outcome.get("rounds", 0))
    found: dict[int, dict[str, float]] = {last: {}}
    curve = {**outcome.get("curve", {}), str(last): outcome["scores"]}
    for number, scores in curve.items():
        means = {f"accuracy/{test}": mean(list(nodes.values())) for test, nodes in scores.items()}
        found.setdefault(int(number), {}).update(means)
    for name, shown in (("loss", "loss/training"), ("consensus", "consensus distance")):
        for number, value in enumerate(outcome.get(name, ()), 1):
            found.setdefault(number, {})[shown] = value
    for key in TOTALS if "bytes" in outcome else ():
        meters = [one[key] for phase, one in outcome["bytes"].items() if phase != "hello"]
        found[last][f"traffic/{key}"] = float(sum(meters))
    found[last]["seconds"] = float(outcome["seconds"])
    return found


@contextmanager
def tracked(tracker: Shipped | None, console: Console) -> Iterator[Tracking | None]:
    """Yield a tracker's process, if there is a tracker; end it within CLOSE_S."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    tracking = None if tracker is None else Tracking(tracker, say, say)
    try:
        yield tracking
    finally:
        if tracking is not None:
            tracking.close(CLOSE_S)
