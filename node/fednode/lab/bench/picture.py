"""Plot a benchmark: seconds per step of both sides and the arithmetic floor, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fednode.errors import ConfigError
from fednode.lab.bench.measure import Row


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write a plot (.png, .svg, .pdf).

    Raise ConfigError if matplotlib is not installed or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise ConfigError(
            "--plot needs matplotlib: install fednode[plot], or leave --plot out."
        ) from fault
    figure = Figure(figsize=(max(6.0, 0.7 * len(rows) + 2), 4.5), layout="constrained")
    axes: Any = figure.add_subplot()
    places = range(len(rows))
    for shift, (label, values) in enumerate(
        (
            ("open_clip", [row.reference_s for row in rows]),
            ("fednode", [row.ours_s for row in rows]),
            ("floor", [row.floor_s for row in rows]),
        )
    ):
        axes.bar([place + 0.27 * (shift - 1) for place in places], values, 0.25, label=label)
    for place, row in zip(places, rows, strict=True):
        axes.annotate(
            f"{row.ratio:.1f}x",
            (place, max(row.reference_s, row.ours_s)),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
        )
    axes.set_yscale("log")
    axes.set_ylabel("seconds a step (median)")
    axes.set_xticks(list(places), [row.name for row in rows], rotation=30, ha="right")
    axes.set_title(title, loc="left")
    axes.margins(y=0.12)
    figure.legend(loc="outside upper right", ncols=3)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as fault:
        raise ConfigError(f"--plot {path} cannot be written: {fault}.") from fault
