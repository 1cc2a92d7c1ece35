"""`fednode bench`: the group of benchmarks, and `tuning`, which times a step of local tuning."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from fednode.errors import ConfigError
from fednode.lab.bench.command_scale import scale

ALLOCATOR: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


@click.group()
def bench() -> None:
    """Measure speed on this machine; a reference, if there is one, is measured in the same run."""


bench.add_command(scale)


@bench.command()
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
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw a picture too.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
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
    from fednode.lab.bench import measure, picture, tasks

    chosen = [one for name in sweep for one in tasks.SWEEPS[name]] or list(tasks.TASKS)
    unknown = sorted(set(only) - {one.name for one in chosen})
    if unknown:
        names = ", ".join(one.name for one in chosen)
        raise ConfigError(f"There is no row {unknown[0]!r}; there are {names}.")
    chosen = [one for one in chosen if not only or one.name in only]
    found: list[measure.Row] = []
    precisions: list[measure.Precision] = ["float32"]
    if bf16:
        precisions.append("bfloat16")
    for precision in precisions:
        frozen = measure.random_model(model, precision, device, threads)
        for row in measure.rows(frozen, chosen, repeats):
            found.append(row)
            if form == "table":
                click.echo(f"{row.name}: {row.ratio:.1f} times", err=True)
    if form == "json":
        click.echo(json.dumps({"model": model, "rows": [asdict(row) for row in found]}))
    else:
        Console().print(_table(model, found))
    if plot:
        picture.draw(found, f"{model}, {threads} threads, {device}", plot)
    _judge(found, measure.REFERENCE_SHARE)


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


def _table(model: str, rows: Sequence[Any]) -> Table:
    rates = {f"{row.rate / 1e9:.0f} ({row.own_rate / 1e9:.0f})" for row in rows}
    table = Table(
        title=f"{model}, seconds a step (medians); large products of torch (and of ours) in "
        f"GFLOP/s: {', '.join(sorted(rates))}",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("row", no_wrap=True)
    for column in ("ref.", "ours", "ratio", "floor", "of ours", "ref. rate", "gradient"):
        table.add_column(column, justify="right")
    for row in rows:
        name, *numbers, _, _, _ = asdict(row).values()
        table.add_row(name, *(f"{number:.3g}" for number in numbers))
    return table
