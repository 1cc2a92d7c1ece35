"""`fednode experiment FILE`: compare methods, show progress, and skip runs that are done."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from fednode.lab.experiment.cells import Done, read_scores
from fednode.lab.experiment.files import load_experiment
from fednode.terminal.options import PATH
from fednode.units import duration

if TYPE_CHECKING:
    from fednode.lab.experiment.settings import Experiment
    from fednode.lab.experiment.vary import Variant

RUNS = Path("runs")
POINTS = 10
"""Points of a curve with --plot, unless the file says curve_every."""
ANY_GPU = ("auto", "cuda")
"""Devices that are whichever GPU a process sees first."""


@click.command()
@click.argument("file", type=PATH)
@click.option("--smoke", is_flag=True, help="The small sizes of the file's section `smoke`.")
@click.option("--set", "flags", multiple=True, help="section.key=value, over the file.")
@click.option("--out", type=PATH, help="Folder of the outcome [runs/experiment-NAME].")
@click.option("--scores", type=PATH, help="A scores.csv whose cells are not run again.")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Processes, one thread each [all cores].",
)
@click.option("--scheduler", help="Run on the Dask cluster of this scheduler, as tcp://HOST:8786.")
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
    scheduler: str | None,
    plot: bool,
) -> int:
    """Run the methods of FILE on one data set and write tables, curves and bytes.

    Finished runs are not repeated: after an interruption, start the same command again.
    """
    loaded = load_experiment(file, smoke, flags)
    known = read_scores(scores) if scores else {}
    from fednode.lab.experiment import picture, report, vary  # torch takes seconds; faults none
    from fednode.lab.experiment.executors import opened
    from fednode.lab.experiment.run import cells, run_all

    folder = out or RUNS / f"experiment-{file.stem}{'-smoke' if smoke else ''}"
    console = Console()
    variants = vary.variants(loaded, file, smoke, flags, folder)
    if plot:
        variants = [
            replace(variant, experiment=_with_curve(variant.experiment)) for variant in variants
        ]
    spread = all(variant.experiment.model.device in ANY_GPU for variant in variants)
    command = _command(file, smoke, flags)
    parts: list[tuple[Variant, Sequence[Done]]] = []
    total = sum(len(cells(variant.experiment)) for variant in variants)
    with opened(workers, scheduler, spread) as pool, _View(console, total) as view:
        for variant in variants:
            done = run_all(variant.experiment, variant.folder, pool, view.note, known)
            report.write(variant.experiment, done, variant.folder, command)
            if plot:
                picture.draw(picture.panels_of(done), variant.folder / "curves.png")
            parts.append((variant, done))
    written = variants[0].folder / "report.md"
    if loaded.vary:
        written = vary.write(loaded, parts, folder, command)
    for text in (written.read_text(encoding="utf-8"), f"All of it is in {folder}"):
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    return 2 if any(ended.fault for _, done in parts for ended in done) else 0


def _with_curve(asked: Experiment) -> Experiment:
    """Return an experiment with points for a curve, if it asks for none."""
    if asked.curve_every:
        return asked
    return replace(asked, curve_every=max(1, asked.rounds // POINTS))


def _command(file: Path, smoke: bool, flags: tuple[str, ...]) -> str:
    parts = ["fednode", "experiment", str(file), *(["--smoke"] if smoke else [])]
    for flag in flags:
        parts += ["--set", flag]
    return shlex.join(parts)


class _View:
    """A line for each run, with the time left; at the end how many runs are kept."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._began = console, total, time.monotonic()
        self._kept = self._ended = 0

    def __enter__(self) -> _View:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._kept:
            self._console.print(f"{self._kept} of {self._total} runs were there from before.")
        if kind is KeyboardInterrupt:
            done = f"{self._kept + self._ended} of {self._total} runs are kept"
            raise KeyboardInterrupt(f"{done}; the same command goes on from there.") from None

    def note(self, done: Done) -> None:
        if not done.fresh:
            self._kept += 1
            return
        self._ended += 1
        count = self._kept + self._ended
        line = f"{count}/{self._total} {done.cell.title}: {done.summary}"
        if self._console.is_terminal:
            left = (time.monotonic() - self._began) / self._ended * (self._total - count)
            line += f"; about {duration(left)} left"
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)
