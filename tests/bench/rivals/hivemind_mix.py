"""Measure hivemind: peers, each a process of its own, that average one array among all.

    python -m tests.bench.rivals.hivemind_mix --numbers 8192 --mixes 10 --death-limit 60

It runs in hivemind's environment and prints one JSON line. A peer is a DHT and a
DecentralizedAverager with default settings; the size of a group is the number of peers, so an
averaging begins as soon as all have met.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.rivals.children import Child, ChildError, Children, interface_bytes, listen, say

READY_S: Final = 60.0
MIX_LIMIT_S: Final = 60.0
FAILED: Final = "the peers did not average all {} in one group"


def peer(numbers: int, nodes: int, index: int, first: list[str]) -> None:
    """Run one peer, and average when the parent says so."""
    import torch
    from hivemind import DHT, DecentralizedAverager

    torch.set_num_threads(1)
    dht = DHT(initial_peers=first, start=True)
    array = torch.full((numbers,), float(index))
    averager = DecentralizedAverager(
        [array], dht, prefix="mix", target_group_size=nodes, start=True
    )

    def mix(said: dict[str, Any]) -> None:
        with averager.get_tensors() as arrays:
            arrays[0].fill_(float(index))
        say("started")
        group = averager.step(timeout=said["limit_s"])
        with averager.get_tensors() as arrays:
            mean = float(arrays[0].mean())
        say("mixed", group=len(group) if group else 0, mean=mean)

    say("ready", addresses=[str(one) for one in dht.get_visible_maddrs()])
    listen({"mix": mix})


def swarm(children: Children, folder: Path, nodes: int, numbers: int) -> list[Child]:
    """Start the peers; the first one is the address that the others join by."""
    started: list[Child] = []
    first: list[str] = []
    deadline = time.monotonic() + READY_S
    for index in range(nodes):
        command = [sys.executable, "-m", "tests.bench.rivals.hivemind_mix", "--peer", str(index)]
        command += ["--nodes", str(nodes), "--numbers", str(numbers), "--first", *first]
        started.append(children.start(command, folder / f"{numbers}-{index}.log"))
        if not first:
            first = started[0].take("ready", deadline)["addresses"]
    for child in started[1:]:
        child.take("ready", deadline)
    return started


def mix(peers: list[Child]) -> tuple[float, list[dict[str, Any]]]:
    """Let all peers average once; return the seconds until the last has the mean, and answers."""
    deadline = time.monotonic() + MIX_LIMIT_S
    for one in peers:
        one.tell(do="mix", limit_s=MIX_LIMIT_S)
    starts = [one.take("started", deadline)["at"] for one in peers]
    answers = [one.take("mixed", deadline) for one in peers]
    return max(one["at"] for one in answers) - min(starts), answers


def measure(folder: Path, nodes: int, numbers: int, mixes: int, death_s: float) -> dict[str, Any]:
    """Return seconds and bytes of an averaging (the first one, which meets first, apart)."""
    with Children() as children:
        peers = swarm(children, folder, nodes, numbers)
        first_s, _ = mix(peers)
        before, seconds, whole = interface_bytes(), [], 0
        for _ in range(mixes):
            took, answers = mix(peers)
            if all(one["group"] == nodes for one in answers):
                whole += 1
                seconds.append(took)
        if not seconds:
            raise ChildError(FAILED.format(nodes))
        found: dict[str, Any] = {
            "round_s": statistics.median(seconds),
            "round_min_s": min(seconds),
            "round_max_s": max(seconds),
            "first_s": first_s,
            "rounds": whole,
            "rounds_split": mixes - whole,
            "interface_bytes": (interface_bytes() - before) / mixes,
        }
        return found | (death(peers, death_s) if death_s else {})


def death(peers: list[Child], limit_s: float) -> dict[str, Any]:
    """Kill a peer as an averaging begins; return the seconds until the survivors have averaged."""
    for one in peers:
        one.tell(do="mix", limit_s=limit_s)
    *left, victim = peers
    victim.take("started", time.monotonic() + MIX_LIMIT_S)
    victim.kill()
    began = time.monotonic()
    waiting = list(left)
    groups: list[int] = []
    ends: list[float] = []
    while waiting:
        for one in list(waiting):
            try:
                said = one.take("mixed", began + limit_s)
            except ChildError:
                note = f"no averaging of all survivors within {limit_s:.0f} s"
                return {"recovery_s": None, "recovery_limit_s": limit_s, "recovery_note": note}
            if said["group"] == len(left):
                waiting.remove(one)
                ends.append(said["at"] - began)
            elif said["at"] - began < limit_s:
                one.tell(do="mix", limit_s=max(1.0, began + limit_s - said["at"]))
            groups.append(said["group"])
    return {"recovery_s": max(ends), "recovery_limit_s": limit_s, "recovery_groups": groups}


def main() -> int:
    """Measure averagings and, where --death-limit is above 0, a death; print one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals.hivemind_mix")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mixes", type=int, default=10)
    parser.add_argument("--numbers", type=int, default=8192)
    parser.add_argument("--death-limit", type=float, default=0.0)
    parser.add_argument("--peer", type=int)
    parser.add_argument("--first", nargs="*", default=[])
    given = parser.parse_args()
    if given.peer is not None:
        peer(given.numbers, given.nodes, given.peer, given.first)
        return 0
    with tempfile.TemporaryDirectory(prefix="fednode-rival-") as name:
        found = measure(Path(name), given.nodes, given.numbers, given.mixes, given.death_limit)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
