"""Run ZeroDFL's 59 clients as 59 daemons over mutual TLS, and measure memory and bytes.

    python -m tests.bench.fifty_nine --data data/101_ObjectCategories [--nodes 59] [--rounds 50]
                                     [--interval 5] [--poll 5]

The layout is ZeroDFL's (59 clients, S = 5) as far as one data set allows: node i holds five base
classes from number i on, counted modulo the number of base classes. The mesh runs in a network
namespace of its own (`unshare --net`, as root), so that the counters of its only interface count
the mesh and the status requests, and nothing else. Each node begins a round every `interval`
seconds at most: at full speed, 59 daemons leave two cores no time for their messages. Printed and
kept under runs/bench. The program fails if a daemon fails, or if the bytes of the meters and of the
interface do not fit (tests/bench/interface.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.local import MemberClient
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.bench.figures import publish
from tests.bench.interface import Account, Interface
from tests.bench.test_memory import memory, rollup

INSIDE: Final = "--inside"
"""Tells the process that it is in the namespace already."""
POLL_S: Final = 5.0
LIMIT_S: Final = 3600.0
PAPER: Final = {"rounds": 500, "rows": 4, "width": 512}
GIB: Final = 2**30


@dataclass(slots=True)
class Seen:
    """What was measured: each node's highest PSS in MB, and the bytes of the meters.

    start: bytes that each node had sent when it was last seen before its first round.
    """

    pss: dict[str, float] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)


class CountingClient(MemberClient):
    """Count status requests, and the bytes of their answers."""

    requests = 0
    received = 0

    async def status(self, address: str) -> StatusReply:
        """Return the node at an address as it is now."""
        found = await super().status(address)
        self.requests += 1
        self.received += found.ByteSize()
        return found


def settings(
    folder: Path, data: str, nodes: int, rounds: int, interval_s: float, poll_s: float
) -> MeshSettings:
    """Return the mesh; its node.yaml is written into the folder."""
    config = folder / "node.yaml"
    tree = {
        "data": {
            "path": data,
            "halves": True,
            "shots": 8,
            "test": 0.2,
            "partition": {"how": "classes", "width": 5},
        },
        "policy": {"name": "zerodfl", "recipients": 5, "wire_dtype": "float16"},
        "tuning": {"start": "common", "lr": 0.01, "evaluate_every": rounds},
        "rounds": {"max": rounds, "min_interval_s": interval_s},
    }
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return MeshSettings(
        run_dir=folder / "mesh",
        nodes=nodes,
        config=config,
        name="fifty-nine",
        tls=True,
        poll_s=poll_s,
        grace_s=60.0,
    )


async def run(asked: MeshSettings) -> tuple[Seen, LocalMesh, float, Account]:
    """Run the mesh to its end; return what was seen, the ended mesh, seconds, and the bytes."""
    seen, client = Seen(), CountingClient(asked.run_dir)
    began = time.monotonic()
    async with LocalMesh(asked, client, on_event=print) as mesh:
        watcher = asyncio.create_task(_watch(mesh, seen))
        await mesh.wait_finished(LIMIT_S)
        watcher.cancel()
        # The mesh goes on with its messages, so meters and interface are read in one moment.
        for status in await asyncio.gather(*(mesh.look(name) for name in mesh.members)):
            for name in ("messages", "payload", "serialized", "wire"):
                key = f"{name}_out"
                seen.totals[name] = seen.totals.get(name, 0) + getattr(status.traffic, key)
        account = Account(
            interface=Interface.read(),
            seconds=time.monotonic() - began,
            wire=seen.totals["wire"],
            messages=seen.totals["messages"],
            requests=client.requests,
            status=client.received,
        )
    await client.close()
    return seen, mesh, time.monotonic() - began, account


async def _watch(mesh: LocalMesh, seen: Seen) -> None:
    while True:
        await mesh.change()
        rounds = []
        for name, member in mesh.members.items():
            rounds.append(member.status.round if member.status else 0)
            if member.status and not member.status.round and not member.status.traffic.payload_out:
                seen.start[name] = member.status.traffic.wire_out
            if member.daemon.pid is not None:
                found = memory(rollup(member.daemon.pid))["PSS"]
                seen.pss[name] = max(seen.pss.get(name, 0.0), found)
        highest = max(seen.pss.values(), default=0.0)
        shown = f"rounds {min(rounds)} to {max(rounds)}, highest PSS {highest:.0f} MB"
        sys.stdout.write(shown + "\n")
        sys.stdout.flush()


def report(seen: Seen, mesh: LocalMesh, seconds: float, account: Account, rounds: int) -> None:
    """Print and keep the figures."""
    codes = [one.daemon.exit_code for one in mesh.members.values()]
    last = [one.status.round if one.status else 0 for one in mesh.members.values()]
    payload, wire = seen.totals["payload"], seen.totals["wire"]
    messages = len(codes) * rounds * 5
    numbers = payload / 2 / messages
    scale = PAPER["rounds"] / rounds
    more = PAPER["rows"] * PAPER["width"] * 2 * messages - payload
    start = sum(seen.start.values())  # greetings, once a run
    paper_payload = (payload + more) * scale
    paper_wire = start + (wire - start + more) * scale
    rows: list[dict[str, str | float]] = [
        {"figure": "daemons", "value": len(codes)},
        {"figure": "exit codes that are not 0", "value": sum(code != 0 for code in codes)},
        {"figure": "last round, lowest", "value": min(last)},
        {"figure": "seconds", "value": seconds},
        {"figure": "PSS, highest of a daemon, MB", "value": max(seen.pss.values())},
        {"figure": "PSS, mean of each daemon's highest, MB",
         "value": sum(seen.pss.values()) / len(seen.pss)},
        {"figure": "numbers in a message, mean", "value": numbers},
        {"figure": "payload, MiB", "value": payload / 2**20},
        {"figure": "wire by the meters, MiB", "value": wire / 2**20},
        {"figure": "wire before the first round, MiB", "value": start / 2**20},
        {"figure": "interface, MiB", "value": account.interface.bytes / 2**20},
        {"figure": "500 rounds of 4 x 512: payload, GiB", "value": paper_payload / GIB},
        {"figure": "500 rounds of 4 x 512: wire, GiB", "value": paper_wire / GIB},
        {"figure": "wire over payload", "value": paper_wire / paper_payload},
    ]  # fmt: skip
    title = f"ZeroDFL, {len(codes)} daemons, {rounds} rounds, mutual TLS"
    publish("fifty-nine", title, rows)
    least, most = account.bounds
    parts = {
        **account.parts(),
        "all": account.interface.bytes,
        "the rest is at least": least,
        "the rest is at most": most,
    }
    table: list[dict[str, str | float]] = [
        {"bytes of the interface": name, "MiB": one / 2**20} for name, one in parts.items()
    ]
    counts = (
        f"{account.messages:,} messages, {account.requests:,} status requests, "
        f"{account.interface.packets:,} packets, {account.interface.connections:,} connections"
    )
    publish("fifty-nine-interface", f"{title}: {counts}", table)


def main() -> int:
    """Enter a network namespace, run the mesh there, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fifty_nine", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", default="builtin", help="a folder of classes, or builtin")
    parser.add_argument("--nodes", type=int, default=59)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two rounds")
    parser.add_argument("--poll", type=float, default=POLL_S, help="seconds between two requests")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        command = [sys.executable, "-m", "tests.bench.fifty_nine", *sys.argv[1:], INSIDE]
        return subprocess.run(["unshare", "--net", "--", *command]).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    data = given.data if given.data == "builtin" else os.path.abspath(given.data)
    with tempfile.TemporaryDirectory(prefix="fednode-59-") as folder:
        asked = settings(Path(folder), data, given.nodes, given.rounds, given.interval, given.poll)
        seen, mesh, seconds, account = asyncio.run(run(asked))
        report(seen, mesh, seconds, account, given.rounds)
    ended_well = all(one.daemon.exit_code == 0 for one in mesh.members.values())
    if fault := account.fault():
        sys.stderr.write(fault + "\n")
    return 0 if ended_well and not fault else 1


if __name__ == "__main__":
    sys.exit(main())
