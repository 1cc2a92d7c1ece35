"""What the scripts of the rivals print, as rows; medians, ratios and the table."""

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
    system: str, work: str, command: Sequence[str], limit_s: float, env: Mapping[str, str], cwd: Path
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
        return failed(system, work, f"no result within {limit_s:.0f} s")
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


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of turns, the least and the most; ratio: over the reference's, turn by turn.

    turns: those with this figure, of all that were tried.
    """

    system: str
    work: str
    figure: str
    median: float
    least: float
    most: float
    turns: int
    tried: int
    ratio: float | None


def summary(rows: Sequence[Figures], reference: str) -> list[Spread]:
    """Return a line for each system, work and figure that at least one turn measured.

    The ratio is the median of the ratios of turns: the system's figure over that of `reference` in
    the same turn and work. It is None for the reference, and where it measured nothing.
    """
    found: list[Spread] = []
    for system, work in dict.fromkeys((row.system, row.work) for row in rows):
        own = [row for row in rows if (row.system, row.work) == (system, work)]
        others = [row for row in rows if (row.system, row.work) == (reference, work)]
        for figure in MEASURED:
            values = [value for row in own if (value := getattr(row, figure)) is not None]
            if not values:
                continue
            ratios = [
                mine / theirs
                for row, other in zip(own, others, strict=False)
                if (mine := getattr(row, figure)) is not None
                and (theirs := getattr(other, figure))
                and system != reference
            ]
            found.append(
                Spread(
                    system, work, figure, median(values), min(values), max(values),
                    len(values), len(own), median(ratios) if ratios else None,
                )
            )  # fmt: skip
    return found


def reasons(rows: Sequence[Figures]) -> list[str]:
    """Return a sentence for each different reason why something was not measured."""
    said = (f"{row.system}, {row.work}: {row.reason}" for row in rows if row.reason)
    return list(dict.fromkeys(said))


def cells(spreads: Sequence[Spread]) -> list[dict[str, str | float]]:
    """Return the table's rows."""
    return [
        {
            "system": one.system,
            "work": one.work,
            "figure": one.figure,
            "median": one.median,
            "least": one.least,
            "most": one.most,
            "turns": f"{one.turns} of {one.tried}",
            "over fednode": "-" if one.ratio is None else f"{one.ratio:.3g}",
        }
        for one in spreads
    ]


def document(rows: Sequence[Figures], spreads: Sequence[Spread]) -> dict[str, Any]:
    """Return all of it for JSON."""
    return {
        "rows": [asdict(row) for row in rows],
        "summary": [asdict(one) for one in spreads],
        "not measured": reasons(rows),
    }
