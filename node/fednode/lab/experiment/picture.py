"""Draw curves over rounds, a line for each method: those of an experiment, and of the demo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fednode.core import foreign
from fednode.errors import ConfigError
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.table import mean

WIDTH_IN: Final = 5.0
HEIGHT_IN: Final = 4.5
"""Of a panel, without the legend below it, which has a column for each panel."""
ROW_IN: Final = 0.2
LABEL_MAX: Final = 40
"""Most characters of a label in a legend, as many as a panel is wide."""
Lines = Mapping[str, Mapping[int, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of a picture.

    lines: by label and round, values whose mean is drawn. level: a dashed line, named.
    """

    title: str
    lines: Lines
    level: tuple[str, float] | None = None


def draw(panels: Sequence[Panel], path: Path) -> None:
    figure(panels).savefig(path, dpi=120)


def figure(panels: Sequence[Panel]) -> Any:
    """Return matplotlib's figure; raise ConfigError where matplotlib is not there."""
    levels = {panel.level[0] for panel in panels if panel.level is not None}
    rows = -(-len(levels.union(*(panel.lines for panel in panels))) // len(panels))
    made = new_figure(WIDTH_IN * len(panels), HEIGHT_IN + ROW_IN * rows)
    axes = made.subplots(1, len(panels), squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axis, panel in zip(axes, panels, strict=True):
        for label, points in panel.lines.items():
            rounds = sorted(points)
            values = [mean(points[at]) for at in rounds]
            (handles[label],) = axis.plot(rounds, values, marker=".")
        if panel.level is not None:
            label, height = panel.level
            handles[label] = axis.axhline(height, color="0.4", linestyle="--", linewidth=1)
        axis.set(title=panel.title, xlabel="round")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    shown = [foreign.line(label, LABEL_MAX) for label in handles]
    made.legend(handles.values(), shown, loc="outside lower center", ncols=len(panels),
                fontsize=8, frameon=False)  # fmt: skip
    return made


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches; raise ConfigError where matplotlib is not there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "matplotlib draws pictures and is not installed: run pip install 'fednode[plot]'."
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def panels_of(done: Sequence[Done]) -> list[Panel]:
    """Return an experiment's accuracies, loss and consensus distance, as far as it has them.

    Tests of base and of new classes have a panel each. A method that learns nothing is a dashed
    line.
    """
    tests = {test for ended in done for test in ended.outcome.get("scores", {})}
    kinds = [kind for kind in ("base", "new") if any(_of_kind(test, kind) for test in tests)]
    panels = [_accuracy(done, kind) for kind in kinds or [""]]
    for key, title in (("loss", "training loss"), ("consensus", "consensus distance")):
        lines = _lines()
        for ended in done:
            for number, value in enumerate(ended.outcome.get(key, ()), 1):
                lines[ended.cell.method.label][number].append(value)
        if lines:
            panels.append(Panel(title, lines))
    return panels


def _accuracy(done: Sequence[Done], kind: str) -> Panel:
    """Return the mean accuracy over tests; kind: of the tests to take, "" for all."""
    lines = _lines()
    flat: defaultdict[str, list[float]] = defaultdict(list)
    for ended in done:
        label = ended.cell.method.label
        if "scores" in ended.outcome and "curve" not in ended.outcome:
            flat[label] += _percent(ended.outcome["scores"], kind)
        for number, scores in ended.outcome.get("curve", {}).items():
            lines[label][int(number)] += _percent(scores, kind)
    level = next(((label, mean(values)) for label, values in flat.items() if values), None)
    title = f"accuracy on {kind} classes (%)" if kind else "accuracy (%)"
    return Panel(title, lines, level=level)


def _percent(scores: Mapping[str, Mapping[str, float]], kind: str) -> list[float]:
    """Return the mean accuracy in percent over the tests of a kind; nothing without such tests."""
    shown = [nodes for test, nodes in scores.items() if _of_kind(test, kind)]
    return [100 * mean([mean(list(nodes.values())) for nodes in shown])] if shown else []


def _of_kind(test: str, kind: str) -> bool:
    return kind in ("", test.rpartition("/")[2])


def _lines() -> defaultdict[str, defaultdict[int, list[float]]]:
    return defaultdict(lambda: defaultdict(list))
