"""`fednode experiment FILE`: compare methods, show progress, and skip runs that are done."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fednode.commands.paths import PATH
from fednode.commands.tracked import tracker_option
from fednode.errors import ConfigError
from fednode.experiment.files import load_experiment
from fednode.experiment.remaining import Remaining
from fednode.experiment.scores import read
from fednode.experiment.tracked import Runs, tracked
from fednode.track.tracking import Kind, shipped

if TYPE_CHECKING:
    from fednode.experiment.run import Cell, Done
    from fednode.experiment.settings import Experiment

RUNS = Path("runs")
POINTS = 10
"""Points of a curve with --plot, unless the file says curve_every."""


@click.command()
@click.argument("file", type=PATH)
@click.option("--smoke", is_flag=True, help="The small sizes of the file's section `smoke`.")
@click.option("--set", "flags", multiple=True, help="section.key=value, over the file.")
@click.option("--out", type=PATH, help="Folder of the outcome [runs/experiment-NAME].")
@click.option("--scores", type=PATH, help="A scores.csv whose cells are not run again.")
@click.option("--workers", type=int, default=0, help="Processes, one thread each [all cores].")
@tracker_option
@click.option(
    "--plot", is_flag=True, help="Draw curves.png (needs matplotlib), by ten points a run."
)
def experiment(
    file: Path,
    smoke: bool,
    flags: tuple[str, ...],
    out: Path | None,
    scores: Path | None,
    workers: int,
    tracker: Kind | None,
    plot: bool,
) -> int:
    """Run the methods of FILE on one data set and write tables, curves and bytes.

    Finished runs are not repeated: after an interruption, start the same command again.
    """
    if workers < 0:
        raise ConfigError(
            f"--workers is {workers}; give 0 for all cores, or a number of processes."
        )
    chosen = None if tracker is None else shipped(tracker)
    found = load_experiment(file, smoke, flags)
    known = read(scores) if scores else {}
    from fednode.experiment import picture, report, vary  # torch takes seconds; faults none
    from fednode.experiment.run import cells, run_all

    folder = out or RUNS / f"experiment-{file.stem}{'-smoke' if smoke else ''}"
    console = Console()
    command = _command(file, smoke, flags)
    variants = vary.variants(found, file, smoke, flags, folder)
    if plot:
        variants = [replace(one, experiment=_with_curve(one.experiment)) for one in variants]
    parts = []
    processes = workers or os.cpu_count() or 1
    every = [cell for one in variants for cell in cells(one.experiment)]
    with _View(console, every, processes) as view:
        for one in variants:
            with tracked(chosen, one.experiment, one.folder, console) as runs:

                def note(done: Done, runs: Runs = runs) -> None:
                    view.note(done)
                    runs.note(done)

                done = run_all(one.experiment, one.folder, processes, note, known)
                written = report.write(one.experiment, done, one.folder, command)
                if plot:
                    picture.draw(picture.panels_of(done), one.folder / "curves.png")
                runs.tables()
            parts.append((one, done))
    if found.vary:
        shown = vary.figures(parts)
        written = vary.write(found, parts, shown, folder, command)
        panel = vary.panel(found, parts, shown) if plot else None
        if panel is not None:
            picture.draw([panel], folder / "curves.png")
    console.print(
        written.read_text(encoding="utf-8"), soft_wrap=True, highlight=False, markup=False
    )
    console.print(f"All of it is in {folder}", soft_wrap=True, highlight=False)
    return 2 if any(one.fault for _, done in parts for one in done) else 0


def _with_curve(found: Experiment) -> Experiment:
    """Return an experiment with points for a curve, if it asks for none."""
    if found.curve_every:
        return found
    return replace(found, curve_every=max(1, found.rounds // POINTS))


def _command(file: Path, smoke: bool, flags: tuple[str, ...]) -> str:
    parts = ["fednode", "experiment", str(file), *(["--smoke"] if smoke else [])]
    for flag in flags:
        parts += ["--set", flag]
    return shlex.join(parts)


class _View:
    """A progress bar on a terminal, else a line per run; estimates the time left."""

    def __init__(self, console: Console, cells: Sequence[Cell], processes: int) -> None:
        self._console, self._total = console, len(cells)
        runs = [(one.file, one.method.label) for one in cells]
        self._remaining = Remaining(runs, processes, time.monotonic())
        self._kept = self._fresh = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=self._total, left="")

    def __enter__(self) -> _View:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.stop()
        if kind is KeyboardInterrupt:
            self._console.print("Stopped. The same command goes on from here.")
        if self._kept:
            self._console.print(f"{self._kept} of {self._total} runs were there from before.")

    def note(self, done: Done) -> None:
        """Show that one more run ended."""
        if not done.fresh:
            self._kept += 1
            self._remaining.keep(done.cell.file, float(done.outcome.get("seconds", 0.0)))
            self._bar.update(self._task, advance=1, description="taken over")
            return
        self._fresh += 1
        ended = self._kept + self._fresh
        now = time.monotonic()
        self._remaining.end(done.cell.file, done.outcome.get("seconds"), now)
        left = str(self._remaining.left(now))
        said = f"failed: {done.fault}" if done.fault else _scores(done)
        self._bar.update(self._task, advance=1, description=done.cell.title, left=left)
        line = f"{ended}/{self._total} {done.cell.title}: {said}"
        if not self._console.is_terminal:
            line += f" ({left})"
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def _scores(done: Done) -> str:
    scores = done.outcome["scores"]
    shown = [f"{name} {100 * sum(v.values()) / len(v):.1f}" for name, v in scores.items()]
    return ", ".join(shown) + f" in {done.outcome['seconds']:.0f} s"
