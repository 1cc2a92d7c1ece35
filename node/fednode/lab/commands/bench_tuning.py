"""`fednode bench tuning`: the time of a step of local tuning, beside open_clip's."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from fednode.errors import ConfigError
from fednode.lab.bench.output import Column, Panel, draw, output_options, show

ALLOCATOR: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


COLUMNS: Final = (
    Column("name", "row"),
    Column("reference_s", "ref.", "s"),
    Column("ours_s", "ours", "s"),
    Column("ratio", "ratio"),
    Column("floor_s", "floor", "s"),
    Column("floor_share", "of", "ours"),
    Column("reference_share", "ref.", "rate"),
    Column("difference", "gradient"),
)
ON_GPU: Final = (
    Column("steps", "steps", "/s"),
    Column("reference_mb", "ref.", "MB"),
    Column("ours_mb", "ours", "MB"),
)
NOTE: Final = (
    "Seconds a step, medians. floor: time for the fewest operations of a step, at the rate of\n"
    "torch's large matrix product. gradient: largest relative difference between both sides.\n"
    "products: the rate of large matrix products, torch's (and fednode's)."
)

GPU_NOTE: Final = (
    "steps: of ours in a second. MB: most memory of the GPU in a step, with the model."
)


@click.command()
@click.option("--model", default="ViT-B-16", show_default=True, help="open_clip architecture.")
@click.option("--repeats", default=3, show_default=True, help="Runs of each, taken in turns.")
@click.option("--bf16/--no-bf16", default=True, show_default=True, help="Measure bfloat16 too.")
@click.option("--threads", default=2, show_default=True, help="CPU threads of both.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda:N.")
@click.option("--only", multiple=True, help="Measure the row of this name only; may be repeated.")
@click.option(
    "--sweep",
    type=click.Choice(["classes", "shots", "domains"]),
    multiple=True,
    help="Measure over sizes, instead of the usual rows; may be repeated.",
)
@output_options
def tuning(
    model: str,
    repeats: int,
    bf16: bool,
    threads: int,
    device: str,
    only: tuple[str, ...],
    sweep: tuple[str, ...],
    plot: Path | None,
    form: str,
) -> None:
    """Time a step of prompt tuning with random weights; 15 minutes for ViT-B-16 on two cores.

    The reference is open_clip at 77 tokens per class, with images encoded in every step (uncached)
    or once (cached). Rows that end in "-cached" compare fednode's step with and without the token
    cache. The command fails if the reference was too slow for a fair comparison.
    """
    _keep_memory()
    # open_clip warns on the root logger about random weights, which are intended here.
    logging.getLogger().addHandler(logging.NullHandler())
    if repeats < 1 or threads < 1:
        raise ConfigError("--repeats and --threads must be at least 1.")
    from fednode.lab.bench import measure, tasks

    chosen = [task for name in sweep for task in tasks.SWEEPS[name]] or list(tasks.TASKS)
    unknown = sorted(set(only) - {task.name for task in chosen})
    if unknown:
        names = ", ".join(task.name for task in chosen)
        raise ConfigError(f"There is no row {unknown[0]!r}; there are {names}.")
    chosen = [task for task in chosen if not only or task.name in only]
    rows: list[measure.TuningRow] = []
    precisions: list[measure.Precision] = ["float32"]
    if bf16:
        precisions.append("bfloat16")
    for precision in precisions:
        frozen = measure.random_model(model, precision, device, threads)
        for row in measure.rows(frozen, chosen, repeats):
            rows.append(row)
            if form == "table":
                click.echo(f"{row.name}: {row.ratio:.1f} times", err=True)
    rates = {f"{row.rate / 1e9:.0f} ({row.own_rate / 1e9:.0f})" for row in rows}
    title = f"{model}, {threads} threads, {device}"
    columns: tuple[Column, ...] = COLUMNS
    note = NOTE
    if device != "cpu":
        columns, note = (*COLUMNS, *ON_GPU), f"{NOTE}\n{GPU_NOTE}"
    products = f"torch (and ours): {', '.join(sorted(rates))} GFLOP/s"
    show(form, f"{title}; {products}", rows, columns, note)
    if plot:
        draw([_panel(rows)], title, plot)
    _judge(rows, measure.REFERENCE_SHARE)


def _judge(rows: Sequence[Any], least: float) -> None:
    """Raise ConfigError if a reference was too slow for a fair comparison."""
    slow = [row for row in rows if row.judged and row.reference_share < least]
    if slow:
        worst = min(slow, key=lambda row: row.reference_share)
        raise ConfigError(
            f"The reference of {worst.name} reached {100 * worst.reference_share:.0f} % of the "
            f"matrix product rate, less than {100 * least:.0f} %: the ratios of "
            f"{', '.join(row.name for row in slow)} are void; close other programs and measure "
            "again."
        )


def _keep_memory() -> None:
    """Restart the process with a memory allocator that keeps large blocks.

    glibc returns every large block to the system at once. The reference would spend a quarter of
    its time on getting new pages, so the comparison would be unfair. glibc reads these settings
    only when a process starts.
    """
    if not sys.platform.startswith("linux") or set(ALLOCATOR) & set(os.environ):
        return
    command = [sys.executable, "-m", "fednode.cli", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **ALLOCATOR})


def _panel(rows: Sequence[Any]) -> Panel:
    sides = {"open_clip": "reference_s", "fednode": "ours_s", "floor": "floor_s"}
    lines = {side: [(row.name, getattr(row, key)) for row in rows] for side, key in sides.items()}
    return Panel("seconds a step (median)", "", lines)
