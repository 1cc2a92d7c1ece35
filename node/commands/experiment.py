"""`fednode experiment FILE`: compare methods, show progress, and skip runs that are done."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
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
from fednode.experiment.tracked import tracked
from fednode.track.tracking import Kind, shipped

if TYPE_CHECKING:
    from fednode.experiment.run import Cell, Done

RUNS = Path("runs")


@click.command()
@click.argument("file", type=PATH)
@click.option("--smoke", is_flag=True, help="The small sizes of the file's section `smoke`.")
@click.option("--set", "flags", multiple=True, help="section.key=value, over the file.")
@click.option("--out", type=PATH, help="Folder of the outcome [runs/experiment-NAME].")
@click.option("--workers", type=int, default=0, help="Processes, one thread each [all cores].")
@tracker_option
@click.option("--plot", is_flag=True, help="Draw curves.png (needs matplotlib).")
def experiment(
    file: Path,
    smoke: bool,
    flags: tuple[str, ...],
    out: Path | None,
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
    from fednode.experiment import picture, report  # torch takes seconds; the file's faults none
    from fednode.experiment.run import cells, run_all

    folder = out or RUNS / f"experiment-{file.stem}{'-smoke' if smoke else ''}"
    console = Console()
    command = _command(file, smoke, flags)
    processes = workers or os.cpu_count() or 1
    with tracked(chosen, found, folder, console) as runs:
        with _View(console, cells(found), processes) as view:

            def note(done: Done) -> None:
                view.note(done)
                runs.note(done)

            done = run_all(found, folder, processes, note)
        written = report.write(found, done, folder, command)
        if plot:
            picture.draw(picture.panels_of(done), folder / "curves.png")
        runs.tables()
    console.print(
        written.read_text(encoding="utf-8"), soft_wrap=True, highlight=False, markup=False
    )
    console.print(f"All of it is in {folder}", soft_wrap=True, highlight=False)
    return 2 if any(one.fault for one in done) else 0


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
