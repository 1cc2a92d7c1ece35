"""Measure p2pfl, hivemind, Flower and fednode in one run, taking turns on this machine.

    python -m tests.bench.rivals [--turns 3] [--death-limit 60] [--format json]

Every rival is installed once, from its published package, into an environment of its own below
--environments. Every measurement runs in a network and process namespace of its own (`unshare`),
in which nothing but its own loopback interface can be reached, and which ends with it.

`fednode async` and `fednode sync` are `fednode bench mesh` with ZeroDFL, which takes rows of other
nodes' prompts. `fednode mean` is PromptFL in sync rounds: every node takes the mean of all prompts,
as p2pfl, hivemind and Flower do here.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.figures import FOLDER
from tests.bench.rivals import outcome
from tests.bench.rivals.environments import (
    FLOWER,
    HIVEMIND,
    P2PFL,
    InstallError,
    Rival,
    default_folder,
    interpreter,
)

ROOT: Final = Path(__file__).resolve().parents[3]
LIMIT_S: Final = 300.0
SMALL, MEDIUM, LARGE = "64", "8192", "73728"
"""float32 numbers of a message: 256 bytes, 33 KB, 295 KB."""
REFERENCES: Final = ("fednode async", "fednode sync", "fednode mean")
NAMESPACE: Final = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
UP: Final = ("--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement of a turn; rival None is fednode."""

    system: str
    work: str
    module: str
    words: tuple[str, ...] = ()
    rival: Rival | None = None


def tasks(death_limit: float, quick: bool) -> list[Task]:
    """Return what a turn measures, in order: the rivals between measurements of fednode."""
    limit = () if quick else ("--death-limit", str(death_limit))
    death = () if quick else ("--death",)

    def ours(mode: str, work: str, *more: str) -> Task:
        words = ("--mode", mode, "--numbers", work, *more)
        return Task(f"fednode {mode}", work, "fednode_mesh", words)

    def mean(work: str, *more: str) -> Task:
        words = ("--mode", "sync", "--policy", "promptfl", "--numbers", work, *more)
        return Task("fednode mean", work, "fednode_mesh", words)

    def mixing(work: str, *more: str) -> Task:
        words = ("--numbers", work, *more)
        return Task("hivemind", work, "hivemind_mix", words, HIVEMIND)

    return [
        ours("async", SMALL, *death),
        Task("p2pfl", SMALL, "p2pfl_mesh", limit, P2PFL),
        ours("sync", SMALL, *death),
        mean(SMALL),
        Task("Flower", SMALL, "flower_rounds", (), FLOWER),
        ours("async", MEDIUM),
        mixing(MEDIUM, *limit),
        mean(MEDIUM, *death),
        ours("sync", MEDIUM),
        ours("async", LARGE),
        mixing(LARGE),
        mean(LARGE),
        ours("sync", LARGE),
    ]


def perform(task: Task, folder: Path, limit_s: float) -> outcome.Figures:
    """Run one measurement; whatever stops it becomes a row with the reason."""
    python = Path(sys.executable)  # fednode's
    if task.rival:
        try:
            python = _interpreter(folder, task.rival)
        except InstallError as error:
            return outcome.failed(task.system, task.work, str(error))
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    inside = (*NAMESPACE, *user, *UP)
    command = (*inside, str(python), "-m", f"tests.bench.rivals.{task.module}", *task.words)
    paths = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory(prefix="fednode-rivals-") as name:
        return outcome.run(task.system, task.work, command, limit_s, env, Path(name))


@functools.cache
def _interpreter(folder: Path, rival: Rival) -> Path:
    return interpreter(folder, rival)


def main(words: Sequence[str] | None = None) -> int:
    """Measure in turns, print the table or JSON, and keep JSON under runs/bench."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--environments", type=Path, default=default_folder())
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--death-limit", type=float, default=60.0, help="seconds to wait")
    parser.add_argument("--no-death", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="systems; default: all")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    given = parser.parse_args(words)
    rows: list[outcome.Figures] = []
    for turn in range(given.turns):
        for task in tasks(given.death_limit, given.no_death):
            if given.only and not any(task.system.startswith(one) for one in given.only):
                continue
            load = os.getloadavg()[0]
            row = perform(task, given.environments, LIMIT_S + given.death_limit)
            rows.append(row)
            shown = "no figures" if row.round_s is None else f"{row.round_s:.4f} s"
            text = f"turn {turn + 1}, {task.system}, {task.work}: {shown}, load {load:.1f}"
            sys.stderr.write(f"{text} {row.reason}\n")
    spreads = outcome.summary(rows, REFERENCES)
    found = json.dumps(outcome.document(rows, spreads), indent=1) + "\n"
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "rivals.json").write_text(found, "utf-8")
    if given.format == "json":
        sys.stdout.write(found)
    elif spreads:
        sys.stdout.write(outcome.text(outcome.cells(spreads, REFERENCES)))
    for one in outcome.reasons(rows):
        sys.stderr.write(one + "\n")
    return 0 if spreads else 1


if __name__ == "__main__":
    sys.exit(main())
