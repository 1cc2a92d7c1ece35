"""Rounds of daemons by two versions of fednode, in turns: processor time and seconds of a round.

`git worktree add --detach /tmp/before COMMIT && python -m tests.bench.mesh_turns /tmp/before`
prints docs/speed.md's table. The meshes are those of `fednode bench mesh`. Processor time is that
of all daemons, user and system, between two answers of theirs; so the start does not count, and
other programs on the machine count little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parents[2]
FIRST: Final = 20
"""Rounds of every node before the measuring begins."""
WORKER: Final = """
import sys
from tests.bench.mesh_turns import measured
print(measured(*sys.argv[1:]))
"""


def measured(mode: str, nodes: str, tls: str, policy: str, rounds: str) -> str:
    """Return what a round of a mesh takes, as JSON."""
    return json.dumps(asyncio.run(_measure(mode, int(nodes), tls == "tls", policy, int(rounds))))


async def _measure(mode: str, nodes: int, tls: bool, policy: str, rounds: int) -> dict[str, float]:
    from fednode.lab.bench import mesh as bench

    prompts = bench.Prompts(policy=policy)
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as folder:
        words = ("rounds.max=0", *prompts.settings)
        async with bench._mesh(Path(folder), mode, nodes, tls, *words, poll_s=0.2) as mesh:

            def passed() -> int:
                return min(status.round for status in bench.known(mesh))

            await bench._wait_for(mesh, lambda: passed() >= FIRST)
            began = time.perf_counter()
            first = [(await mesh.look(name), _processor_s(mesh, name)) for name in mesh.members]
            until = passed() + rounds
            await bench._wait_for(mesh, lambda: passed() >= until)
            last = [(await mesh.look(name), _processor_s(mesh, name)) for name in mesh.members]
            seconds = time.perf_counter() - began
    pairs = list(zip(first, last, strict=True))
    mean = sum(after.round - before.round for (before, _), (after, _) in pairs) / nodes
    traffic = {
        field: sum(
            getattr(after.traffic, field) - getattr(before.traffic, field)
            for (before, _), (after, _) in pairs
        )
        for field in ("messages_out", "wire_out")
    }
    return {
        "cpu_ms": 1000 * sum(after - before for (_, before), (_, after) in pairs) / mean,
        "wall_ms": 1000 * seconds / mean,
        "messages": traffic["messages_out"] / mean,
        "bytes": traffic["wire_out"] / mean,
    }


def _processor_s(mesh: Any, name: str) -> float:
    """Return the processor time of a daemon so far, user and system, with all its threads."""
    pid = mesh.members[name].daemon.pid
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def turn(tree: Path, words: list[str]) -> dict[str, float]:
    """Run one mesh of one version; return what a round took."""
    paths = os.pathsep.join(map(str, (tree / "node", tree / "bootstrap", HERE)))
    with tempfile.TemporaryDirectory(prefix="fednode-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", WORKER, *words], stdout=subprocess.PIPE, text=True,
            cwd=folder, env=os.environ | {"PYTHONPATH": paths}, check=True,
        )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a line for each turn, and the medians."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("before", type=Path, help="a tree of the version before")
    words.add_argument("--turns", type=int, default=5)
    words.add_argument("--mode", choices=("sync", "async"), default="sync")
    words.add_argument("--nodes", type=int, default=4)
    words.add_argument("--policy", default="zerodfl")
    words.add_argument("--rounds", type=int, default=400)
    words.add_argument("--no-tls", action="store_true")
    given = words.parse_args()
    kind = [given.mode, str(given.nodes), "" if given.no_tls else "tls"]
    kind += [given.policy, str(given.rounds)]
    trees = {"before": given.before.resolve(), "now": HERE}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in trees}
    for count in range(given.turns):
        for side in list(trees) if count % 2 == 0 else reversed(trees):
            found[side].append(turn(trees[side], kind))
            shown = "  ".join(f"{key} {value:.2f}" for key, value in found[side][-1].items())
            print(f"{side:6}  {shown}  load {os.getloadavg()[0]:.1f}", flush=True)
    for key in found["now"][0]:
        before, now = ([one[key] for one in found[side]] for side in trees)
        ratio = median(new / old for new, old in zip(now, before, strict=True))
        print(f"{key:8}  before {median(before):.2f}  now {median(now):.2f}  ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
