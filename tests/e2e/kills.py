"""Daemons that are killed with SIGKILL at random instants, again and again, on one directory.

This process imports all that a node without torch needs. It forks a child for each life, and the
child runs `fednode start` as from a shell. So a life takes tenths of a second, not seconds.

    python -m tests.e2e.kills FOLDER LIVES SEED LONGEST_S [start's arguments ...]

LONGEST_S: how long a life may be silent before it ends; a node with torch needs some to load.

Prints one JSON object: lives, rounds, and what was found wrong, which must be nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import select
import signal
import sys
from pathlib import Path
from typing import Any

from fednode.cli import main as fednode
from fednode.errors import FednodeError
from fednode.storage.store import Store
from tests.unit.storage.stored import read_snapshot

PEERS = "mesh: m\ninsecure: true\npeers:\n  - {{name: a, address: '127.0.0.1:{port}'}}\n"
ADOPTED = re.compile(rb"round (\d+) adopted")
DAMAGED = re.compile(rb"damaged|defect|Traceback")
FIRST_WORD_S = 180.0
NEEDED = ("commands.start", "observe.page", "observe.web", "policies.zerodfl")
"""Modules that a life imports."""


def live(folder: Path, words: list[str], lasts_s: float) -> bytes:
    """Run a daemon, kill it some time after its first word, and return what it said."""
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        os.dup2(says, 2)
        os.dup2(says, 1)
        fednode(["start", *words])
        os._exit(99)
    os.close(says)
    os.set_blocking(said, False)
    heard = b""
    poll = select.poll()
    poll.register(said, select.POLLIN)
    ending = False
    while True:
        if not poll.poll((FIRST_WORD_S if not heard else lasts_s) * 1000) or ending:
            break
        data = os.read(said, 1 << 16)
        if not data:
            break
        if b"adopted" in data and lasts_s < 0.02:
            ending = True  # within a round of the first commits
        heard += data
        if len(heard) > 1 << 20:
            break
        # Some die while they start, most once they commit, a few after many rounds.
        if random.random() < (0.05 if b"adopted" in heard else 0.02):
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while True:
        try:
            data = os.read(said, 1 << 16)
        except BlockingIOError:
            break
        if not data:
            break
        heard += data
    os.close(said)
    return heard


def judge(folder: Path, heard: bytes, before: int) -> tuple[int, list[str]]:
    """Return the durable round, and what is wrong with the directory after a life."""
    wrong: list[str] = []
    told = [int(number) for number in ADOPTED.findall(heard)]
    if told and told[0] != before + 1:
        wrong.append(f"resumed with round {told[0]} after round {before}")
    if DAMAGED.search(heard):
        wrong.append(heard[-500:].decode(errors="replace"))
    try:
        store = Store(folder)  # takes the lock, as the next life will
        held = store.latest()
        warnings = list(store.warnings)
        store.close()
        number = held.policy.round if held else 0
        if held is not None and read_snapshot(folder).policy != held.policy:
            wrong.append("two readers see two states")
    except FednodeError as fault:
        return before, [*wrong, str(fault)]
    if number < max([before, *told]):
        wrong.append(f"round {max([before, *told])} was adopted, and {number} is there")
    return number, [*wrong, *warnings]


def run(folder: Path, lives: int, seed: int, longest_s: float, words: list[str]) -> dict[str, Any]:
    """Live and die so many times."""
    chance = random.Random(seed)
    random.seed(seed)
    for name in NEEDED:
        importlib.import_module(f"fednode.{name}")
    from fednode.transports.ports import free_ports

    peers = folder / "peers.yaml"
    state = folder / "state"
    wrong: list[str] = []
    number, resumed = 0, 0
    for life in range(lives):
        peers.write_text(PEERS.format(port=free_ports(1)[0]))
        given = ["--peers", str(peers), "--name", "a", "--state", str(state), *words]
        heard = live(folder, given, longest_s * chance.choice([0.005, 0.05, 0.25, 1]))
        before = number
        number, found = judge(state, heard, before)
        resumed += number > before
        wrong += [f"life {life}: {text}" for text in found]
    return {"lives": lives, "rounds": number, "lives_with_progress": resumed, "wrong": wrong}


if __name__ == "__main__":
    place, count, start = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(run(place, count, start, float(sys.argv[4]), sys.argv[5:])))
