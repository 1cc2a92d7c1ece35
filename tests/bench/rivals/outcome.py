"""The figures that the scripts of the rivals print, as rows; medians, ratios and the table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

REASON_CHARS: Final = 200
PIPE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One measurement of one system in one turn. A figure that was not measured is None.

    work: what was measured; only rows of the same work are compared. round_s: seconds of a round
    or of an averaging. prompts, control: messages of all nodes with and without prompts, a round.
    bytes: of these messages as the system counts them. interface_bytes: of the loopback interface,
    with TCP. recovery_s: from SIGKILL of a node until the others get on. reason: why there are no
    figures, or why there is no recovery_s.
    """

    system: str
    work: str
    round_s: float | None = None
    prompts: float | None = None
    control: float | None = None
    bytes: float | None = None
    interface_bytes: float | None = None
    recovery_s: float | None = None
    recovery_limit_s: float | None = None
    reason: str = ""


MEASURED: Final = ("round_s", "prompts", "control", "bytes", "interface_bytes", "recovery_s")


def read(system: str, work: str, line: str) -> Figures:
    """Return the figures of a script's JSON line; ValueError if the line has no seconds a round."""
    said = json.loads(line)
    if not isinstance(said, dict) or not isinstance(said.get("round_s"), int | float):
        raise ValueError("the line has no number round_s")
    known = {key: said[key] for key in (*MEASURED, "recovery_limit_s") if key in said}
    return Figures(system=system, work=work, reason=said.get("recovery_note", ""), **known)


def failed(system: str, work: str, reason: str) -> Figures:
    """Return a row without figures; the reason is cut to one line."""
    return Figures(system=system, work=work, reason=" ".join(reason.split())[:REASON_CHARS])


def run(
    system: str,
    work: str,
    command: Sequence[str],
    limit_s: float,
    env: Mapping[str, str],
    cwd: Path,
) -> Figures:
    """Run a script and return its figures; a failure or the limit becomes a row with a reason.

    The script runs in a session of its own, whose processes are killed at the end.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return failed(system, work, f"no result within {limit_s:g} s")
    finally:
        _end(process)
    if process.returncode:
        lines = err.strip().splitlines() or ["no error was printed"]
        return failed(system, work, f"exit code {process.returncode}: {lines[-1]}")
    try:
        return read(system, work, (out.strip().splitlines() or [""])[-1])
    except ValueError as error:
        return failed(system, work, f"the script printed no figures: {error}")


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of the script's session, and read the pipes to their end."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        process.communicate(timeout=PIPE_S)
    except (subprocess.TimeoutExpired, ValueError):
        process.kill()


SHOWN: Final = {
    "round_s": "round, s",
    "prompts": "prompts",
    "control": "control",
    "bytes": "bytes",
    "interface_bytes": "on lo",
    "recovery_s": "recovery, s",
}
SPREAD: Final = ("round_s", "recovery_s")
WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of turns, the least and the most.

    turns: those with this figure, of all that were tried. ratios: by reference, the median of the
    ratios of turns, this system's figure over that of the reference in the same turn and work.
    """

    system: str
    work: str
    figure: str
    median: float
    least: float
    most: float
    turns: int
    tried: int
    ratios: dict[str, float]


def summary(rows: Sequence[Figures], references: Sequence[str]) -> list[Spread]:
    """Return a line for each system, work and figure that at least one turn measured.

    rows: those of a system and work, in the order of turns, with a row for a turn that failed.
    """
    turns: dict[tuple[str, str], list[Figures]] = {}
    for row in rows:
        turns.setdefault((row.system, row.work), []).append(row)
    found: list[Spread] = []
    for (system, work), own in turns.items():
        for figure in MEASURED:
            values = [value for row in own if (value := getattr(row, figure)) is not None]
            if not values:
                continue
            ratios = {
                name: shown
                for name in references
                if name != system
                and (shown := _ratio(own, turns.get((name, work), []), figure)) is not None
            }
            low, high = min(values), max(values)
            counts = len(values), len(own)
            found.append(Spread(system, work, figure, median(values), low, high, *counts, ratios))
    return found


def _ratio(own: Sequence[Figures], others: Sequence[Figures], figure: str) -> float | None:
    """Return the median of the ratios of turns in which both have the figure."""
    pairs = [
        (getattr(row, figure), getattr(other, figure))
        for row, other in zip(own, others, strict=False)
    ]
    ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
    return median(ratios) if ratios else None


def reasons(rows: Sequence[Figures]) -> list[str]:
    """Return a sentence for each different reason why something was not measured."""
    said = (f"{row.system}, {row.work}: {row.reason}" for row in rows if row.reason)
    return list(dict.fromkeys(said))


def cells(spreads: Sequence[Spread], references: Sequence[str]) -> list[dict[str, str]]:
    """Return a table's row for each system and work: medians, with the least and the most.

    The columns of ratios are those of the seconds a round, over each reference's.
    """
    lines: dict[tuple[str, str], dict[str, Spread]] = {}
    for one in spreads:
        lines.setdefault((one.system, one.work), {})[one.figure] = one
    rows: list[dict[str, str]] = []
    for (system, work), by_figure in lines.items():
        row = {"system": system, "numbers": work}
        for figure, name in SHOWN.items():
            row[name] = _shown(by_figure.get(figure))
            if figure == "round_s":
                ratios = by_figure[figure].ratios if figure in by_figure else {}
                for other in references:
                    row[f"/ {other}"] = f"{ratios[other]:.3g}" if other in ratios else "-"
        rows.append(row)
    return rows


def _shown(one: Spread | None) -> str:
    if one is None:
        return "-"
    middle = f"{one.median:,.0f}" if one.median >= WHOLE else f"{one.median:.3g}"
    if one.figure not in SPREAD or one.turns == 1:
        return middle
    return f"{middle} ({one.least:.3g}-{one.most:.3g})"


def text(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows (all with the same keys) as a Markdown table with aligned columns."""
    grid = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(len(line[at]) for line in grid) for at in range(len(grid[0]))]
    grid.insert(1, ["-" * width for width in widths])
    lines = (
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in grid
    )
    return "".join(f"| {line} |\n" for line in lines)


def document(rows: Sequence[Figures], spreads: Sequence[Spread]) -> dict[str, Any]:
    """Return all of it for JSON."""
    return {
        "rows": [asdict(row) for row in rows],
        "summary": [asdict(one) for one in spreads],
        "not measured": reasons(rows),
    }
