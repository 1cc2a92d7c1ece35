"""The one clock of the benches, and the one way in which they print their figures."""

from __future__ import annotations

import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import click
import numpy as np

Figure = str | int | float | bool | None


class Timer:
    """Seconds by name, of works that take turns: a machine that is busy slows all of them."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Add the seconds of what is done inside."""
        began = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - began)

    def median(self, name: str) -> float:
        return float(np.median(self.seconds[name]))


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def show(
    title: str, rows: Sequence[Mapping[str, Figure]], as_json: bool = False, note: str = ""
) -> None:
    """Print rows with equal keys as a table with a note below it, or as JSON."""
    if as_json:
        click.echo(json.dumps({"title": title, "rows": [dict(row) for row in rows]}))
        return
    table = [list(rows[0]), *(list(map(_cell, row.values())) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    click.echo(title)
    for first, *others in table:
        cells = map(str.rjust, others, widths[1:])
        click.echo("  ".join([first.ljust(widths[0]), *cells]))
    if note:
        click.echo(note)


def _cell(figure: Figure) -> str:
    if figure is None or isinstance(figure, bool):
        return "yes" if figure else "-"
    if isinstance(figure, float):
        return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"
    return f"{figure:,}" if isinstance(figure, int) else figure
