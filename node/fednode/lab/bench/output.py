"""What the benchmarks print: a table or JSON, and a plot of lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from fednode.errors import ConfigError
from fednode.terminal.paths import PATH

Command = TypeVar("Command", bound=Callable[..., Any])
Points = Sequence[tuple[float | str, float]]


def output_options(command: Command) -> Command:
    """Add `--plot FILE` and `--format table|json` to a benchmark, as `plot` and `form`."""
    plot = click.option("--plot", type=PATH, metavar="FILE", help="Draw a picture, too.")
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    )
    return plot(form(command))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. key: a field of the rows. digits: significant digits of its numbers.

    unit: shown below the name.
    """

    key: str
    name: str
    unit: str = ""
    digits: int = 3


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of a plot: lines by label over numbers of something, on logarithmic axes.

    Names in place of numbers stand side by side, without lines between them.
    """

    title: str
    x: str
    lines: Mapping[str, Points]


def show(form: str, title: str, rows: Sequence[Any], columns: Sequence[Column], note: str) -> None:
    """Print rows (dataclasses) as JSON, or as a table with a note below it."""
    if form == "json":
        click.echo(json.dumps({"title": title, "rows": [asdict(row) for row in rows]}))
        return
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        name = f"{column.name}\n{column.unit}" if column.unit else column.name
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(_cell(getattr(row, shown.key), shown.digits) for shown in columns))
    Console().print(table)
    click.echo(note)


def _cell(value: Any, digits: int) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Write a plot (.png, .svg, .pdf); raise ConfigError if that is not possible."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise ConfigError(
            "--plot needs matplotlib: install fednode[plot], or leave --plot out."
        ) from fault
    figure = Figure(figsize=(4.2 * len(panels), 4.0), layout="constrained")
    for number, panel in enumerate(panels, 1):
        axes: Any = figure.add_subplot(1, len(panels), number)
        places = dict.fromkeys(x for points in panel.lines.values() for x, _ in points)
        named = any(isinstance(place, str) for place in places)
        for label, points in panel.lines.items():
            axes.plot(*zip(*points, strict=True), "o" if named else "o-", label=label)
        axes.set_yscale("log")
        if not named:
            axes.set_xscale("log", base=2)
            axes.set_xticks(sorted(places), [f"{place:g}" for place in sorted(places)])
        axes.tick_params(axis="x", rotation=45)
        heights = [y for points in panel.lines.values() for _, y in points]
        if heights:  # at least two decades, so that a few percent do not look like growth
            axes.set_ylim(min(*heights, max(heights) / 50) / 2, max(heights) * 2)
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.set_xlabel(panel.x)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(title, x=0.01, ha="left")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as fault:
        raise ConfigError(f"--plot {path} cannot be written: {fault}.") from fault
