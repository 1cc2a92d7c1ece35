"""Daemons with 1,024 descriptors under an attack that lasts: pace of rounds, descriptors, memory.

    python -m tests.e2e.attacks.siege NAME ... [--minutes 10] [--calm 60] [--every 30]

NAME is an attack of `attacker.py`. Three daemons on 127.0.0.1 run mesh-wide rounds (PromptFL, sync,
closed-form learner, mutual TLS), one each 0.2 s at most. For silent and newcomer-KIND they enrol
with an introducer, and another key enrols each EVERY seconds, with as many tries as a daemon makes
(ten, 3 s apart). For headers a page is read as often. Each process has a soft and a hard limit of
1,024 descriptors.

One run: the mesh warms up; CALM seconds without the attack; the attack for so many minutes; CALM
seconds of rest; CALM more without the attack. It prints one table for each attack, and a line for
each at the end. If `spin` is among the names, the last column compares the pace with the pace under
that control in the same run. It ends with exit code 1 unless under each attack:

- rounds keep 80 % of the better pace of before and after the attack, by the slowest daemon;
- after the rest no process has more than 16 descriptors more than before the attack;
- after the rest no process has more than 32 MiB more resident memory than before the attack;
- each enrolment and each look at the page that was tried succeeds;
- at the end all daemons hold equal prompts after the newest round that all of them have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fednode.app.network import ENROL_TRIES, ENROL_WAIT_S, IDENTITY, client_of
from fednode.errors import FednodeError, Unreachable
from fednode.identity.enrol import enrol, introducer
from fednode.identity.identity import Identity
from fednode.observe.client import Client
from fednode.settings.peers import load_peers
from fednode.transports.ports import free_ports
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.process import FEDNODE, Daemon
from tests.contract.faults import pause
from tests.e2e.attacks.attacker import ATTACKS, HOSTILE

MESH: Final = "siege"
NODES: Final = ("a", "b", "c")
INTRODUCER: Final = "introducer"
ATTACKER: Final = "attacker"
DESCRIPTORS: Final = 1024
SETTINGS: Final = (
    *("--set", "tuning.kind=closed-form", "--set", "policy.name=promptfl"),
    *("--set", "rounds.mode=sync", "--set", "rounds.max=0", "--set", "rounds.min_interval_s=0.2"),
    *("--set", "rounds.deadline_s=2", "--set", "rounds.start.peers=2"),
    *("--set", "log.level=warning"),
)
TETHER: Final = (sys.executable, "-m", "fednode_bootstrap.tether")
TICK_S: Final = 1.0
CONTROL: Final = "spin"
WARM_ROUNDS: Final = 50
GUARD_S: Final = 120.0
PACE_MIN: Final = 0.8
DESCRIPTORS_MORE: Final = 16
MEMORY_MORE: Final = 32.0
"""MiB. A process keeps part of what it once needed: the C library gives pages back late."""


@dataclass
class Process:
    """A process under siege: its descriptors and MiB before and after, and the most of both."""

    daemon: Daemon
    before: tuple[int, float] = (0, 0.0)
    most: tuple[int, float] = (0, 0.0)
    after: tuple[int, float] = (0, 0.0)

    def look(self) -> tuple[int, float]:
        """Return the descriptors and the MiB of resident memory that it holds now."""
        place = Path(f"/proc/{self.daemon.pid}")
        lines = (place / "status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        now = len(os.listdir(place / "fd")), kib / 1024
        self.most = max(self.most[0], now[0]), max(self.most[1], now[1])
        return now


@dataclass
class Siege:
    """One run: the processes, where they are, and what is tried each 30 s of the attack."""

    folder: Path
    at: dict[str, str]
    targets: dict[str, str] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    probe: Callable[[], Awaitable[None]] | None = None
    probes: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    tries: int = 0
    paces: dict[str, float] = field(default_factory=dict)
    equal: bool = False
    calm_s: float = 60.0
    every_s: float = 30.0

    @property
    def ratio(self) -> float:
        """The pace under attack as a share of the better pace of before and after."""
        return self.paces["attack"] / max(self.paces["before"], self.paces["after"])

    async def start(self, name: str, *words: str) -> None:
        """Start a daemon whose descriptors are bounded; its output goes to FOLDER/NAME.log."""
        bound = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$0" "$@"')
        daemon = Daemon(name, (*bound, *FEDNODE, *words), self.folder / f"{name}.log")
        await daemon.start()
        self.processes[name] = Process(daemon)

    async def stop(self) -> None:
        """End all processes."""
        ends = (one.daemon.stop(15.0) for one in self.processes.values())
        await asyncio.gather(*ends)

    async def try_probe(self) -> None:
        """Try once what is to succeed all the time."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            assert self.probe is not None
            async with asyncio.timeout(GUARD_S):
                await self.probe()
        except (FednodeError, OSError, AssertionError) as fault:
            self.failed.append(f"{type(fault).__name__}: {fault}")
        self.probes.append(loop.time() - began)

    async def watch(self, client: Client, seconds: float) -> float:
        """Watch the processes for some seconds; return rounds a second of the slowest daemon."""
        loop = asyncio.get_running_loop()
        end, due = loop.time() + seconds, loop.time() + self.every_s / 2
        first = await self.rounds(client)
        while loop.time() < end:
            await pause(min(TICK_S, end - loop.time()))
            for one in self.processes.values():
                one.look()
            if self.probe is not None and due < loop.time():
                due += self.every_s
                await self.try_probe()
        last = await self.rounds(client)
        return min(
            (last[name][0] - first[name][0]) / (last[name][1] - first[name][1]) for name in NODES
        )

    async def agree(self, client: Client) -> bool:
        """Tell whether all daemons hold equal prompts after the newest round that all have."""
        since = min(number for number, _ in (await self.rounds(client)).values()) - 1
        held = []
        for name in NODES:
            rows = await client.history(self.at[name], since)
            held.append({row.round: row.digest for row in rows})
        last = max(set.intersection(*({*rows} for rows in held)))
        return len({rows[last] for rows in held}) == 1

    async def rounds(self, client: Client) -> dict[str, tuple[int, float]]:
        """Return each daemon's round, and when it said so."""
        found = {}
        async with asyncio.timeout(GUARD_S):
            for name in NODES:
                while name not in found:
                    with contextlib.suppress(FednodeError):
                        reply = await client.status(self.at[name])
                        found[name] = reply.round, asyncio.get_running_loop().time()
        return found


async def lay_out(name: str, folder: Path, calm_s: float, every_s: float) -> Siege:
    """Start the processes that an attack is for."""
    gate, hostile, *ports = free_ports(len(NODES) + 2)
    at = {one: f"127.0.0.1:{port}" for one, port in zip(NODES, ports, strict=True)}
    siege = Siege(folder, at, calm_s=calm_s, every_s=every_s)
    more: tuple[str, ...] = ()
    try:
        if name == "silent" or name.startswith("newcomer-"):
            more = await with_introducer(siege, f"127.0.0.1:{gate}")
        else:
            list_nodes(siege, f"127.0.0.1:{hostile}")
        for one in NODES:
            words = ("--peers", str(folder / "peers.yaml"), "--name", one)
            where = ("--set", f"advertise={at[one]}") if more else ()
            state = ("--state", str(folder / one))
            await siege.start(one, "start", *words, *state, *SETTINGS, *where, *more)
    except BaseException:
        await siege.stop()
        raise
    return siege


def list_nodes(siege: Siege, hostile: str) -> None:
    """Write a peers.yaml that lists the nodes, and the attacker's key, which runs no node."""
    lines = [f"mesh: {MESH}", "peers:"]
    for name in (*NODES, HOSTILE):
        id = Identity(siege.folder / name / IDENTITY, MESH, name).id
        where = siege.at.get(name, hostile)
        lines.append(f"  - {{name: {name}, address: '{where}', id: {id}}}")
    (siege.folder / "peers.yaml").write_text("\n".join(lines) + "\n")
    siege.targets = dict(siege.at)


async def with_introducer(siege: Siege, gate: str) -> tuple[str, ...]:
    """Start an introducer; return what nodes need to enrol."""
    folder = siege.folder
    book = Roster(folder / "book", MESH)
    text = f"mesh: {MESH}\nintroducer: {gate}\nmesh_key: {book.mesh_key}\n"
    (folder / "peers.yaml").write_text(text)
    for name in NODES:
        Identity(folder / name / IDENTITY, MESH, name)
    state = ("--state", str(folder / "book"), "--mesh", MESH)
    await siege.start(INTRODUCER, INTRODUCER, "run", *state, "--listen", gate)
    siege.targets = {INTRODUCER: gate}

    async def newcomer() -> None:
        name = f"newcomer-{len(siege.probes)}"
        one = Identity(folder / name, MESH, name)
        token = book.tokens.new(name)
        for left in range(ENROL_TRIES - 1, -1, -1):
            siege.tries += 1
            try:
                await enrol(one, introducer(book.mesh_key, gate), "127.0.0.1:1", token)
            except Unreachable:
                if not left:
                    raise
                await pause(ENROL_WAIT_S)
            else:
                break

    siege.probe = newcomer
    return "--set", f"token={book.tokens.new(uses=len(NODES))}"


def reader_of(address: str) -> Callable[[], Awaitable[None]]:
    """Return what reads a page once."""

    async def read() -> None:
        host, port = address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.closing(writer):
            writer.write(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200"), answer[:40]

    return read


async def run(name: str, folder: Path, given: argparse.Namespace) -> tuple[Siege, bool]:
    """Run one siege, print its table; return it, and whether the mesh stood it."""
    minutes = given.minutes
    siege = await lay_out(name, folder, given.calm, given.every)
    try:
        async with contextlib.AsyncExitStack() as held:
            client = await held.enter_async_context(await warm(siege))
            if name == "headers":
                page = (await client.status(siege.at["a"])).page
                siege.targets = {"page": page.removeprefix("http://").removesuffix("/")}
                siege.probe = reader_of(siege.targets["page"])
            said = await phases(siege, client, name, minutes)
    finally:
        await siege.stop()
    return siege, show(siege, name, minutes, said)


async def warm(siege: Siege) -> Client:
    """Wait until all daemons ran some rounds; return a client that shows the key of one."""
    async with asyncio.timeout(GUARD_S):
        while True:
            peers = load_peers(siege.folder / "peers.yaml")
            client = client_of(peers, siege.folder / NODES[0], 10.0)
            with contextlib.suppress(TimeoutError, FednodeError):
                async with asyncio.timeout(10.0):
                    found = await siege.rounds(client)
                    if min(number for number, _ in found.values()) >= WARM_ROUNDS:
                        return client
            await client.close()
            await pause(1.0)


async def phases(siege: Siege, client: Client, name: str, minutes: float) -> str:
    """Go through the phases of a run; return what the attacker said at its end."""
    probe, siege.probe = siege.probe, None
    siege.paces["before"] = await siege.watch(client, siege.calm_s)
    for one in siege.processes.values():
        one.before = one.most = one.look()
    words = (f"tests.e2e.attacks.{ATTACKER}", name, str(siege.folder), str(60 * minutes))
    targets = (f"{key}={address}" for key, address in siege.targets.items())
    attacker = Daemon(ATTACKER, (*TETHER, *words, *targets), siege.folder / f"{ATTACKER}.log")
    await attacker.start()
    siege.probe = probe
    try:
        siege.paces["attack"] = await siege.watch(client, 60 * minutes)
        async with asyncio.timeout(GUARD_S):
            assert await attacker.ended() == 0, attacker.log.read_text()
    finally:
        await attacker.stop(5.0)
    siege.probe = None
    await siege.watch(client, siege.calm_s)
    for one in siege.processes.values():
        one.after = one.look()
    siege.paces["after"] = await siege.watch(client, siege.calm_s)
    siege.equal = await siege.agree(client)
    return attacker.last_line()


def show(siege: Siege, name: str, minutes: float, said: str) -> bool:
    """Print the table of one siege; tell whether the mesh stood it."""
    paces = siege.paces
    ratio = siege.ratio
    wrong = [] if ratio >= PACE_MIN else [f"pace: {ratio:.2f} is less than {PACE_MIN}"]
    wrong += siege.failed
    wrong += [] if siege.equal else ["the daemons hold different prompts at the end"]
    print(f"\n{name}, {minutes:g} minutes, {DESCRIPTORS:,} descriptors for each process")
    print("rounds a second:", *(f"{key} {pace:.2f}" for key, pace in paces.items()), end=" ")
    print(f"-> {ratio:.0%}")
    print("process       descriptors before   most  after    MiB before   most  after")
    for key, one in siege.processes.items():
        (count, mib), (most, most_mib), (left, left_mib) = one.before, one.most, one.after
        print(f"{key:12} {count:19} {most:6} {left:6} {mib:13.1f} {most_mib:6.1f} {left_mib:6.1f}")
        if left > count + DESCRIPTORS_MORE:
            wrong.append(f"{key}: {left - count} descriptors more than before")
        if left_mib > mib + MEMORY_MORE:
            wrong.append(f"{key}: {left_mib - mib:.1f} MiB more than before")
    if siege.probes:
        what = f"enrolments ({siege.tries} tries)" if siege.tries else "looks at the page"
        fine, slowest = len(siege.probes) - len(siege.failed), max(siege.probes)
        middle = statistics.median(siege.probes)
        print(f"{what}: {fine} of {len(siege.probes)}; {middle:.2f} s, the slowest {slowest:.2f} s")
    print("attacker:", said)
    print("result:", "; ".join(wrong) or "the mesh stood it", flush=True)
    return not wrong


def main(words: list[str]) -> int:
    """Run the sieges that are asked for, one after another; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.attacks.siege")
    parser.add_argument("names", nargs="+", choices=list(ATTACKS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--calm", type=float, default=60.0, help="seconds of each calm phase")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two probes")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args(words)
    found: dict[str, tuple[Siege, bool]] = {}
    for name in given.names:
        with tempfile.TemporaryDirectory(prefix="siege-") as made:
            folder = (given.folder or Path(made)) / name
            folder.mkdir(parents=True)
            found[name] = asyncio.run(run(name, folder, given))
    compare({name: siege for name, (siege, _) in found.items()})
    return 0 if all(stood for _, stood in found.values()) else 1


def compare(sieges: dict[str, Siege]) -> None:
    """Print a line for each siege: pace, pace against the control, memory, probes."""
    control = sieges[CONTROL].ratio if CONTROL in sieges else 1.0
    print(
        "\n| attack | pace before, after | under attack | of the control | most MiB more | probes |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name, one in sieges.items():
        paces = one.paces
        more = max(held.most[1] - held.before[1] for held in one.processes.values())
        probes = f"{len(one.probes) - len(one.failed)} of {len(one.probes)}" if one.probes else ""
        print(
            f"| {name} | {paces['before']:.2f}, {paces['after']:.2f} | {paces['attack']:.2f} "
            f"| {one.ratio / control:.0%} | {more:.0f} | {probes} |"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
