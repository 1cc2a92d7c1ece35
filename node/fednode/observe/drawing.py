"""The page's pictures as numbers: the mesh on a circle, and lines over rounds. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

WIDTH: Final = 400.0
LEFT: Final = 62.0
RIGHT: Final = 390.0
TOP: Final = 12.0
BOTTOM: Final = 178.0
RADIUS: Final = 95.0
THICKEST: Final = 6.0
POINTS_MAX: Final = 200
DOTS_MAX: Final = 60
"""A line of more points is drawn without a dot at each point."""
MOMENTS_MAX: Final = 60
"""Most rounds of a chart whose values are shown under the pointer."""
BOX: Final = 150.0
ROW: Final = 17.0
"""Width of the box with the values of a round, and height of a line of text in it."""
TICKS: Final = 4
TINY: Final = 1e-9
"""Values that differ by less than this share of themselves (or of 1) count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A node of the mesh: its position, and the position of its name."""

    name: str
    state: str
    own: bool
    title: str
    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Messages between two nodes."""

    path: str
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Graph:
    """The mesh. note: what the picture lacks."""

    dots: tuple[Dot, ...]
    edges: tuple[Edge, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity over rounds. now: its last value, as text. dots: its points, if they are few."""

    name: str
    points: str
    now: str
    dots: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A dashed line across a chart. at: number of the line whose colour it has."""

    name: str
    y: float
    now: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The values of a round, in a box that is shown while the pointer is between two edges.

    left, width: of the strip that belongs to the round. x: where the round is. box: left edge of
    the box. height: of the box. texts: the round, then its values.
    """

    left: float
    width: float
    x: float
    box: float
    height: float
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A value on the vertical axis."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines that share an axis. said: their last values in words."""

    title: str
    lines: tuple[Line, ...] = ()
    ticks: tuple[Tick, ...] = ()
    first: int = 0
    last: int = 0
    said: str = ""
    levels: tuple[Level, ...] = ()
    moments: tuple[Moment, ...] = ()


def graph(
    own: str, states: Mapping[str, str], sent: Mapping[tuple[str, str], int], note: str = ""
) -> Graph:
    """Return the picture of the mesh.

    states: of all nodes, by name. sent: number of messages, by (sender, receiver).
    """
    names = sorted(states)
    places = {
        name: 2 * math.pi * at / max(1, len(names)) - math.pi / 2 for at, name in enumerate(names)
    }
    dots = tuple(_dot(name, states[name], name == own, places[name]) for name in names)
    pairs: dict[tuple[str, str], list[int]] = {}
    for (node, other), count in sorted(sent.items()):
        if node in places and other in places and count:
            low, high = min(node, other), max(node, other)
            pairs.setdefault((low, high), [0, 0])[node != low] += count
    most = max((sum(both) for both in pairs.values()), default=1)
    edges = tuple(
        Edge(
            f"M{_at(places[node])} L{_at(places[other])}",
            0.6 + (THICKEST - 0.6) * sum(both) / most,
            f"{node} to {other}: {both[0]:,} messages; {other} to {node}: {both[1]:,}",
        )
        for (node, other), both in sorted(pairs.items())
    )
    return Graph(dots, edges, note)


def _dot(name: str, state: str, own: bool, angle: float) -> Dot:
    x, y = RADIUS * math.cos(angle), RADIUS * math.sin(angle)
    across = math.cos(angle)
    anchor = "middle" if abs(across) < 0.3 else "start" if across > 0 else "end"
    down = 4.0 if abs(across) >= 0.3 else (20.0 if y > 0 else -13.0)
    beside = 0.0 if anchor == "middle" else math.copysign(12.0, across)
    shown = name if len(name) <= 12 else name[:11] + "\u2026"
    title = f"{name}: {state}" + (" (this node)" if own else "")
    return Dot(name=shown, state=state, own=own, title=title, x=round(x, 1), y=round(y, 1),
               label_x=round(x + beside, 1), label_y=round(y + down, 1), anchor=anchor)  # fmt: skip


def _at(angle: float) -> str:
    return f"{RADIUS * math.cos(angle):.1f} {RADIUS * math.sin(angle):.1f}"


def chart(
    title: str,
    series: Mapping[str, Sequence[tuple[int, float]]],
    text: Callable[[float], str],
    least: tuple[float, float] | None = None,
    levels: Mapping[str, tuple[str, float]] | None = None,
    span: tuple[int, int] | None = None,
) -> Chart:
    """Return the chart of lines over rounds.

    series: (round, value) by name. text: writes a value. least: two values that the axis has at
    least. levels: by the name of a line, the name and value of a dashed line in its colour. span:
    the first and the last round of the axis; None for those of the lines.
    """
    kept = {
        name: [(at, value) for at, value in points if math.isfinite(value)]
        for name, points in series.items()
    }
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return Chart(title)
    rounds = [at for points in kept.values() for at, _ in points]
    values = [value for points in kept.values() for _, value in points]
    drawn = {name: level for name, level in (levels or {}).items() if name in kept}
    values += [value for _, value in drawn.values()]
    first, last = span or (min(rounds), max(rounds))
    values += least or ()
    marks = scale(min(values), max(values))
    low, high = marks[0], marks[-1]

    def across(at: int) -> float:
        return LEFT + (RIGHT - LEFT) * ((at - first) / (last - first) if last > first else 0.5)

    def up(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low), 1)

    lines = []
    for name, points in kept.items():
        placed = tuple((round(across(at), 1), up(value)) for at, value in thinned(points))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        lines.append(
            Line(name, path, text(points[-1][1]), placed if len(placed) <= DOTS_MAX else ())
        )
    order = list(kept)
    flat = tuple(
        Level(title, up(value), text(value), order.index(name))
        for name, (title, value) in drawn.items()
    )
    shown = [(line.name, line.now) for line in lines] + [
        (level_line.name, level_line.now) for level_line in flat
    ]
    said = "; ".join(f"{name} {value}" for name, value in shown)
    return Chart(
        title,
        tuple(lines),
        tuple(Tick(up(mark), text(mark)) for mark in marks),
        first,
        last,
        f"{title} up to round {last}: {said}",
        flat,
        moments(kept, across, text),
    )


def moments(
    series: Mapping[str, Sequence[tuple[int, float]]],
    across: Callable[[int], float],
    text: Callable[[float], str],
) -> tuple[Moment, ...]:
    """Return the values of at most MOMENTS_MAX + 1 rounds, each with its strip of the chart.

    across: the horizontal place of a round. The strips touch, and cover the chart.
    """
    texts: dict[int, list[str]] = {}
    for name, points in series.items():
        for at, value in points:
            texts.setdefault(at, []).append(f"{name} {text(value)}")
    rounds = [at for at, _ in thinned([(at, 0.0) for at in sorted(texts)], MOMENTS_MAX)]
    places = [across(at) for at in rounds]
    edges = [LEFT, *((place + other) / 2 for place, other in pairwise(places)), RIGHT]
    return tuple(
        Moment(
            left=round(left, 1),
            width=round(right - left, 1),
            x=round(x, 1),
            box=round(x + 8 if x + 8 + BOX <= WIDTH else x - 8 - BOX, 1),
            height=ROW * (1 + len(texts[at])) + 8,
            texts=(f"round {at}", *texts[at]),
        )
        for at, x, (left, right) in zip(rounds, places, pairwise(edges), strict=True)
    )


def scale(low: float, high: float) -> list[float]:
    """Return 3 to 7 round numbers around two values, in steps of 1, 2 or 5 times a power of ten.

    Equal values get an axis from or to 0, because many quantities have no values beyond it.
    """
    if high - low <= TINY * max(abs(low), abs(high), 1.0):
        low, high = (0.0, 1.0) if abs(high) <= TINY else (min(low, 0.0), max(high, 0.0))
    power = 10.0 ** math.floor(math.log10((high - low) / TICKS))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power * TICKS >= high - low)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [at * step for at in range(first, last + 1)]


def thinned(points: Sequence[tuple[int, float]], most: int = POINTS_MAX) -> list[tuple[int, float]]:
    """Return at most `most` + 1 of the points, evenly spaced, with the last point."""
    step = max(1, math.ceil(len(points) / most))
    kept = list(points[::step])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
