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

from bootstrap.report import (
    METRICS,
    Difference,
    Outcome,
    Report,
    Row,
    interval_method,
    points,
    verdict,
)
from bootstrap.report import mean as average
from node.units import scaled

COLORS: Final = ("#1f6f8b", "#d1495b", "#5b8c5a", "#8a6fad")
COLUMNS: Final = (
    "method",
    "base, %",
    "new, %",
    "own, %",
    "tensors sent",
    "on the wire",
)
NO_MATPLOTLIB: Final = (
    "plot.png was not drawn: matplotlib is not installed (the extra named plot brings it)."
)


def write(report: Report, folder: Path) -> list[str]:
    """Write the three files into a folder; return sentences on what could not be written."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = plot(report, folder / "plot.png")
    notes = [missing] if missing else []
    text = markdown(report, plotted=not missing)
    (folder / "report.json").write_text(json.dumps(report.as_json(), indent=1) + "\n", "utf-8")
    (folder / "report.md").write_text(text, "utf-8")
    return notes


def markdown(report: Report, plotted: bool = True) -> str:
    """Return the report for a reader: verdict, table, differences, what was run, how to read it."""
    about = report.about
    parts = [
        f"# {about.get('title', 'What the mesh learned')}",
        verdict(report),
        _table(report.table),
        _differences(report.differences),
    ]
    if plotted:
        parts.append("![accuracy and bytes over rounds](plot.png)")
    if report.remarks:
        parts.append("## What went otherwise than planned\n\n" + _bullets(report.remarks))
    parts += [_what_was_run(about), _how_to_read(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def for_terminal(report: Report) -> Group:
    """Return the table and the verdict for a terminal."""
    grid = RichTable(title=str(report.about.get("title", "")) or None, title_justify="left")
    for number, name in enumerate(COLUMNS):
        grid.add_column(name, justify="right" if number else "left")
    for row in report.table:
        grid.add_row(*_cells(row))
    return Group(grid, Text(verdict(report)))


def percent(mean: float, spread: float | None = None) -> str:
    """Return a fraction as percent with its standard deviation; a dash where there is none."""
    if mean != mean:  # nan
        return "-"
    text = f"{100 * mean:.1f}"
    return text if spread is None else f"{text} ± {100 * spread:.1f}"


def size(count: float) -> str:
    """Return a number of bytes with the binary unit that suits it."""
    return scaled(count, 1024, ("B", "KiB", "MiB"))


def _cells(row: Row) -> list[str]:
    accuracies = [
        percent(getattr(row, f"{name}_mean"), getattr(row, f"{name}_std")) for name in METRICS
    ]
    return [row.method, *accuracies, size(row.payload_bytes), size(row.wire_bytes)]


def _table(table: Sequence[Row]) -> str:
    lines = [COLUMNS, ("---", *("---:",) * (len(COLUMNS) - 1)), *map(_cells, table)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _differences(differences: Sequence[Difference]) -> str:
    if not any(one.pairs for one in differences):
        return ""
    first = differences[0]
    lines = [
        f"| {first.method} minus {first.control} | points | 95 % interval | better in |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {one.metric} classes | {points(one.mean)} | {points(one.low)} to {points(one.high)} | "
        f"{one.wins} of {one.pairs} pairs |"
        for one in differences
        if one.pairs
    ]
    return "\n".join(lines)


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


def _how_to_read(report: Report) -> str:
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


def plot(report: Report, path: Path) -> str | None:
    """Draw accuracy and cumulative bytes over rounds; return why not where it cannot be drawn."""
    try:
        import matplotlib
    except ImportError:
        return NO_MATPLOTLIB
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, 3)
    methods = sorted({one.method for one in report.outcomes})
    zero = next((row for row in report.table if row.n and row.method not in methods), None)
    for panel, metric in zip(panels[:2], ("base", "new"), strict=True):
        for method, color in zip(methods, COLORS, strict=False):
            rounds, means, lows, highs = curve(report.outcomes, method, metric)
            panel.plot(rounds, means, color=color, marker="o", markersize=3, label=method)
            panel.fill_between(rounds, lows, highs, color=color, alpha=0.15, linewidth=0)
        level = getattr(zero, f"{metric}_mean", float("nan"))
        if level == level:
            panel.axhline(100 * level, color="0.4", linestyle="--", linewidth=1, label="zero-shot")
        panel.set(title=f"{metric} classes", xlabel="round", ylabel="accuracy, %")
        panel.legend(frameon=False)
    for method, color in zip(methods, COLORS, strict=False):
        rounds, sent = sent_bytes(report.outcomes, method)
        kib = [value / 1024 for value in sent]
        panels[2].plot(rounds, kib, color=color, marker="o", markersize=3, label=method)
    panels[2].set(title="tensors sent, all nodes", xlabel="round", ylabel="KiB")
    panels[2].legend(frameon=False)
    figure.savefig(path, dpi=120)
    return None


def curve(
    outcomes: Sequence[Outcome], method: str, metric: str
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return rounds and, in percent, the mean over nodes and seeds and its least and greatest."""
    by_round: dict[int, list[float]] = {}
    for one in outcomes:
        for point in one.points if one.method == method else ():
            if metric in point.metrics:
                by_round.setdefault(point.round, []).append(100 * point.metrics[metric])
    rounds = sorted(by_round)
    values = [by_round[number] for number in rounds]
    return rounds, [average(one) for one in values], [*map(min, values)], [*map(max, values)]


def sent_bytes(outcomes: Sequence[Outcome], method: str) -> tuple[list[int], list[float]]:
    """Return rounds and the tensor bytes that all nodes had sent by then, mean over the seeds."""
    by_round: dict[int, int] = {}
    mine = [one for one in outcomes if one.method == method]
    for one in mine:
        for point in one.points:
            by_round[point.round] = by_round.get(point.round, 0) + point.payload_bytes
    runs = max(1, len({one.seed for one in mine}))
    rounds = sorted(by_round)
    return rounds, [by_round[number] / runs for number in rounds]
