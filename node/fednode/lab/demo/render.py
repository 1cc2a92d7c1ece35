"""Write a demo's report down: report.json, report.md and plot.png."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fednode.errors import ConfigError
from fednode.lab.demo.report import (
    METRICS,
    DemoReport,
    Outcome,
    Row,
    interval_method,
    points,
    verdict,
)
from fednode.lab.experiment import picture
from fednode.lab.experiment.picture import Panel
from fednode.learn.figures import Difference, markdown_table, spread
from fednode.units import scaled

COLUMNS: Final = (
    "method",
    "base, %",
    "new, %",
    "own, %",
    "tensors sent",
    "on the wire",
)


def write(report: DemoReport, folder: Path) -> list[str]:
    """Write the three files into a folder; return sentences on what could not be written."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = []
    try:
        picture.draw(panels(report), folder / "plot.png")
    except ConfigError as fault:
        notes.append(f"plot.png was not drawn: {fault}")
    text = markdown(report, plotted=not notes)
    (folder / "report.json").write_text(json.dumps(report.as_json(), indent=1) + "\n", "utf-8")
    (folder / "report.md").write_text(text, "utf-8")
    return notes


def markdown(report: DemoReport, plotted: bool = True) -> str:
    """Return the report for a reader: verdict, table, differences, what was run, how to read it."""
    about = report.about
    parts = [
        f"# {about.get('title', 'What the mesh learned')}",
        verdict(report),
        "\n".join(markdown_table(COLUMNS, map(_cells, report.table))),
        _differences(report.differences),
    ]
    if plotted:
        parts.append("![accuracy and bytes over rounds](plot.png)")
    if report.remarks:
        parts.append("## What went otherwise than planned\n\n" + _bullets(report.remarks))
    parts += [_what_was_run(about), _how_to_read(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def for_terminal(report: DemoReport) -> Group:
    """Return the table and the verdict for a terminal."""
    grid = RichTable(title=str(report.about.get("title", "")) or None, title_justify="left")
    for number, name in enumerate(COLUMNS):
        grid.add_column(name, justify="right" if number else "left")
    for row in report.table:
        grid.add_row(*_cells(row))
    return Group(grid, Text(verdict(report)))


def percent(mean: float, deviation: float | None = None) -> str:
    """Return a fraction as percent with its standard deviation; a dash where there is none."""
    if mean != mean:  # nan
        return "-"
    return spread(100 * mean, None if deviation is None else 100 * deviation)


def size(count: float) -> str:
    """Return a number of bytes with the binary unit that suits it."""
    return scaled(count, 1024, ("B", "KiB", "MiB"))


def _cells(row: Row) -> list[str]:
    accuracies = [
        percent(getattr(row, f"{name}_mean"), getattr(row, f"{name}_std")) for name in METRICS
    ]
    return [row.method, *accuracies, size(row.payload_bytes), size(row.wire_bytes)]


def _differences(differences: Sequence[Difference]) -> str:
    if not any(one.pairs for one in differences):
        return ""
    first = differences[0]
    head = (f"{first.method} minus {first.control}", "points", "95 % interval", "better in")
    body = [
        (
            f"{one.metric} classes",
            points(one.mean),
            f"{points(one.low)} to {points(one.high)}",
            f"{one.wins} of {one.pairs} pairs",
        )
        for one in differences
        if one.pairs
    ]
    return "\n".join(markdown_table(head, body))


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {one}" for one in sentences)


def _what_was_run(about: Mapping[str, Any]) -> str:
    """Render facts as a list, and nested settings as they would be written in a file."""
    left = {name: value for name, value in about.items() if name not in {"title", "settings"}}
    facts = [f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in left.items()]
    parts = ["## What was run", _bullets(facts)] if facts else []
    if about.get("settings"):
        settings = yaml.safe_dump(about["settings"], sort_keys=False).strip()
        parts.append(f"The settings of every node:\n\n```yaml\n{settings}\n```")
    return "\n\n".join(parts)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(one) for one in value)
    return str(value)


def _how_to_read(report: DemoReport) -> str:
    pairs = max((row.n for row in report.table), default=0)
    return "## How to read it\n\n" + _bullets(
        (
            "Every node trains on images of its own few base classes only. `own` is accuracy on "
            "test images of these, named among these; `base` on test images of all nodes' classes, "
            "named among all of them; `new` on classes that no node trained on, named among these.",
            "`zero-shot` is the untuned model with a hand-written prompt. `local` gets the same "
            "images, steps, optimizer and seeds as the other method and exchanges nothing: what "
            "differs from it is due to the exchange alone.",
            f"Accuracies are means ± sample standard deviations over nodes and seeds (n = "
            f"{pairs}), of the prompts as tuned in the last round, in percent; report.json has "
            "them as fractions.",
            "Bytes are what all nodes of one run sent together, mean over the seeds. Hellos and "
            "round markers carry no tensors, but they do cost bytes on the wire, in `local` too.",
            interval_method(report.differences),
            "One small data set and a small model: these figures say whether the exchange helped "
            "here, and nothing about the published tables.",
        )
    )


def panels(report: DemoReport) -> list[Panel]:
    """Return accuracy on base and on new classes, and the bytes of all tensors, over rounds."""
    methods = sorted({one.method for one in report.outcomes})
    zero = next((row for row in report.table if row.n and row.method not in methods), None)
    found = []
    for metric in ("base", "new"):
        level = getattr(zero, f"{metric}_mean", float("nan"))
        line = None if level != level else ("zero-shot", 100 * level)
        curves = {one: curve(report.outcomes, one, metric) for one in methods}
        found.append(Panel(f"{metric} classes, accuracy (%)", curves, band=True, level=line))
    sent = {one: sent_kib(report.outcomes, one) for one in methods}
    return [*found, Panel("tensors sent, all nodes (KiB)", sent)]


def curve(outcomes: Sequence[Outcome], method: str, metric: str) -> dict[int, list[float]]:
    """Return the accuracies of all nodes and seeds in percent, by round."""
    by_round: dict[int, list[float]] = {}
    for one in outcomes:
        for point in one.points if one.method == method else ():
            if metric in point.metrics:
                by_round.setdefault(point.round, []).append(100 * point.metrics[metric])
    return by_round


def sent_kib(outcomes: Sequence[Outcome], method: str) -> dict[int, list[float]]:
    """Return the tensors that all nodes had sent by each round in KiB, mean over the seeds."""
    by_round: dict[int, int] = {}
    mine = [one for one in outcomes if one.method == method]
    for one in mine:
        for point in one.points:
            by_round[point.round] = by_round.get(point.round, 0) + point.payload_bytes
    runs = max(1, len({one.seed for one in mine}))
    return {number: [count / runs / 1024] for number, count in by_round.items()}
