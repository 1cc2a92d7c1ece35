"""A mesh over TLS in which somebody is killed or comes back all the time.

    python -m tests.e2e.soak FOLDER MINUTES [SECONDS between kills]

Twelve daemons on 127.0.0.1; every so many seconds one is killed with SIGKILL, or one that was is
started again. Prints a line each turn and at the end one JSON object: whether every survivor's
round advanced, which daemons have not answered yet, and memory and file descriptors of the
longest-lived, early and late.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode_bootstrap.daemon import Daemon, stop
from tests.contract.faults import pause
from tests.daemons import Nodes

NODES: Final = 12
SETTINGS: Final = (
    *("--set", "tuning.kind=closed-form", "--set", "rounds.max=0"),
    *("--set", "rounds.min_interval_s=0.5", "--set", "log.level=warning"),
)


@dataclass
class Life:
    """A running daemon and what was seen of it: (second, round, KiB of memory, descriptors)."""

    daemon: Daemon
    since: float
    seen: list[tuple[float, int, int, int]] = field(default_factory=list)


async def begin(nodes: Nodes, name: str) -> Life:
    """Start a daemon on its directory."""
    daemon = Daemon(name, nodes.words(name), nodes.folder / f"{name}.log")
    await daemon.start()
    return Life(daemon, asyncio.get_running_loop().time())


async def look(client: Client, lives: dict[str, Life], at: dict[str, str]) -> None:
    """Note every daemon's round, memory and descriptors."""
    now = asyncio.get_running_loop().time()
    for name, life in lives.items():
        with contextlib.suppress(FednodeError, OSError, StopIteration):
            reply = await client.status(at[name])
            process = Path(f"/proc/{reply.pid}")
            lines = (process / "status").read_text().splitlines()
            memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
            descriptors = len(os.listdir(process / "fd"))
            life.seen.append((now - life.since, reply.round, memory, descriptors))


async def soak(folder: Path, minutes: float, every_s: float) -> dict[str, Any]:
    """Run the mesh; return what was found."""
    nodes = Nodes(folder, [f"n{number:02}" for number in range(NODES)], SETTINGS)
    chance, at = random.Random(5), nodes.address
    lives = {name: await begin(nodes, name) for name in at}
    ended: list[Life] = []
    loop = asyncio.get_running_loop()
    end, turn = loop.time() + 60 * minutes, 0
    async with nodes.client("n00") as client:
        while loop.time() < end:
            await pause(every_s)
            await look(client, lives, at)
            dead = sorted(set(at) - set(lives))
            if dead and (chance.random() < 0.5 or len(dead) > 3):
                name = chance.choice(dead)
                lives[name] = await begin(nodes, name)
                did = f"{name} comes back"
            else:
                name = chance.choice(sorted(set(lives) - {"n00"}))
                life = lives.pop(name)
                life.daemon.signal(signal.SIGKILL)
                await life.daemon.ended()
                ended.append(life)
                did = f"{name} is killed"
            turn += 1
            rounds = [life.seen[-1][1] for life in lives.values() if life.seen]
            print(f"{turn}: {did}; {len(lives)} run, rounds {min(rounds, default=0)} to "
                  f"{max(rounds, default=0)}", flush=True)  # fmt: skip
        before = {name: life.seen[-1][1] for name, life in lives.items() if life.seen}
        await pause(every_s)
        await look(client, lives, at)
    found = judge(lives, before, turn)
    await stop([life.daemon for life in lives.values()], 15.0)
    found["clean_ends"] = sum(life.daemon.exit_code == 0 for life in lives.values())
    found["survivors"] = len(lives)
    return found


def judge(lives: dict[str, Life], before: dict[str, int], turns: int) -> dict[str, Any]:
    """Return whether rounds advanced, and how memory and descriptors of old daemons went."""
    stuck = [name for name, life in lives.items() if name in before
             and life.seen[-1][1] <= before[name]]  # fmt: skip
    starting = [name for name, life in lives.items() if not life.seen]
    old = max(lives.values(), key=lambda life: len(life.seen))
    third = max(1, len(old.seen) // 3)
    early, late = old.seen[third : 2 * third], old.seen[-third:]

    def middle(rows: list[tuple[float, int, int, int]], column: int) -> float:
        return statistics.median(row[column] for row in rows)

    return {
        "turns": turns,
        "stuck": stuck,
        "starting": starting,
        "oldest_s": round(old.seen[-1][0]),
        "rounds": [life.seen[-1][1] for life in lives.values() if life.seen],
        "memory_kib": [middle(early, 2), middle(late, 2)],
        "descriptors": [middle(early, 3), middle(late, 3)],
    }


if __name__ == "__main__":
    place, length = Path(sys.argv[1]), float(sys.argv[2])
    between = float(sys.argv[3]) if len(sys.argv) > 3 else 20.0
    print(json.dumps(asyncio.run(soak(place, length, between))))
