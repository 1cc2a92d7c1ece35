"""A mesh of daemons, each behind a NAT of its own, inside of nat_lab.sh."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from tests.contract.faults import pause
from tests.unit.identity.people import SmallMesh
from tests.unit.storage.stored import read_snapshot

FEDNODE = (sys.executable, "-m", "fednode.cli")
LAB = Path(__file__).with_name("nat_lab.sh")
RELAYS = {1: "198.51.100.254:443", 2: "198.51.100.253:443"}
LIMIT_S = 120.0
PAGE = "127.0.0.1:7780"
READ = f"""
import urllib.request
print(urllib.request.urlopen("http://{PAGE}/metrics", timeout=5).read().decode())
"""
POLL_S = 0.05
CLOSED_FORM = (
    *("tuning.kind=closed-form", "policy.name=promptfl", "rounds.mode=sync"),
    "rounds.deadline_s=5",
)


def lab(*words: object) -> None:
    """Change the lab: open a port, cut a NAT off, ..."""
    subprocess.run([LAB, *map(str, words)], check=True)


class Mesh:
    """Nodes behind NATs, and their relays.

    direct: nodes whose NATs forward port 7700, and which name their public address. recorded: relay
    1 writes what it carries to a file.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 5,
        rounds: int = 100,
        relays: int = 1,
        direct: tuple[int, ...] = (),
        settings: tuple[str, ...] = (),
        *,
        recorded: bool = False,
        names: str = "n",
        mesh: str = "lab",
    ) -> None:
        self.folder, self.count = folder, count
        folder.mkdir(parents=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.recorded, self.names, self.direct = recorded, names, direct
        self.settings = (*CLOSED_FORM, f"rounds.max={rounds}", f"page.listen={PAGE}", *settings)
        peers, signed = [], SmallMesh(mesh)
        for number in range(1, count + 1):
            signed.write(self.state(number), self.name(number))
            where = f"198.51.100.{number}:7700" if number in direct else "relay"
            peers.append({"name": self.name(number), "address": where})
        self.relays = {number: RELAYS[number] for number in range(1, relays + 1)}
        for number in self.relays:
            signed.write(folder / f"relay{number}", f"relay{number}")
        known = [
            {"name": f"relay{number}", "address": where} for number, where in self.relays.items()
        ]
        key = {"mesh_key": signed.mesh_key_text}
        tree = {"mesh": mesh, **key, "peers": peers, "relays": known}
        (folder / "peers.yaml").write_text(yaml.safe_dump(tree))
        self._records: dict[int, list[dict[str, Any]]] = {}
        self._read: dict[int, int] = {}

    def name(self, number: int) -> str:
        """Return a node's name."""
        return f"{self.names}{number}"

    def state(self, number: int) -> Path:
        """Return the state directory of a node."""
        return self.folder / self.name(number)

    @property
    def carried(self) -> Path:
        """Return the file in which a recorded relay writes what it carries."""
        return self.folder / "carried"

    def _run(self, name: str, words: list[object]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(one) for one in words], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def relay(self, number: int) -> None:
        """Start a relay."""
        state, listen = self.folder / f"relay{number}", self.relays[number]
        peers = self.folder / "peers.yaml"
        words: list[object] = ["--state", state, "--peers", peers, "--listen", listen]
        if self.recorded:
            recorder = (sys.executable, "-m", "tests.e2e.recording_relay", self.carried)
            self._run(f"relay{number}", [*recorder, *words])
        else:
            self._run(f"relay{number}", [*FEDNODE, "relay", *words])

    def node(self, number: int) -> None:
        """Start a node behind its NAT."""
        words: list[object] = [LAB, "run", number, "--", *FEDNODE, "start"]
        words += ["--peers", self.folder / "peers.yaml", "--name", self.name(number)]
        words += ["--state", self.state(number)]
        more = ("listen=0.0.0.0:7700",) if number in self.direct else ()
        for one in (*self.settings, *more):
            words += ["--set", one]
        self._run(self.name(number), words)

    @contextlib.contextmanager
    def running(self) -> Iterator[Mesh]:
        """Run relays and nodes; end what is left of them."""
        try:
            for number in self.relays:
                self.relay(number)
            for number in range(1, self.count + 1):
                self.node(number)
            yield self
        finally:
            for one in self.processes.values():
                one.send_signal(signal.SIGCONT)
                one.terminate()
            for one in self.processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(10)
                one.kill()

    # What is read ---------------------------------------------------------------------------------

    def records(self, number: int) -> list[dict[str, Any]]:
        """Return the records in a node's log file; what was read before is not read again."""
        path = self.state(number) / "fednode.log"
        held = self._records.setdefault(number, [])
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read.get(number, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read[number] = self._read.get(number, 0) + len(whole) + bool(whole)
            held += [json.loads(line) for line in whole.splitlines() if line.endswith(b"}")]
        return held

    def round(self, number: int) -> int:
        """Return the last round that a node adopted; one that catches up leaves out some."""
        found = self.records(number)
        return max((one["round"] for one in found if one["event"] == "round.adopted"), default=0)

    def adopted(self, number: int) -> list[float]:
        """Return when a node adopted its rounds, in seconds since the epoch."""
        found = (one for one in self.records(number) if one["event"] == "round.adopted")
        return [seconds(one["time"]) for one in found]

    def digests(self) -> set[str]:
        """Return the digests of what the nodes hold; one if all hold the same bits."""
        states = (self.state(number) for number in range(1, self.count + 1))
        return {read_snapshot(one).used(False)[0].digest[:12] for one in states}

    def until(self, true: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> float:
        """Wait until something is true; return how long that took. Exit if it takes too long."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > limit_s:
                fail(f"not within {limit_s:g} s: {what}; the nodes are at {self.rounds()}")
            asyncio.run(pause(POLL_S))
        return time.monotonic() - began

    def rounds(self) -> list[int]:
        """Return the last round that each node adopted."""
        return [self.round(number) for number in range(1, self.count + 1)]

    def all_at(self, number: int) -> Callable[[], bool]:
        """Return whether all nodes adopted a round."""
        return lambda: min(self.rounds()) >= number

    def status(self, asked: int, asker: int = 1) -> dict[str, Any]:
        """Return what a node says of itself, asked by another node's key from that node's place."""
        words = [LAB, "run", asker, "--", *FEDNODE, "status", self.name(asked), "--format", "json"]
        words += ["--peers", self.folder / "peers.yaml", "--state", self.state(asker)]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        if done.returncode:
            return {"fault": done.stderr.strip()}
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def ways(self, number: int) -> dict[str, int]:
        """Return how many peers a node reaches by "direct" and by "relay", by its own metrics."""
        return self._counted(number, "fednode_peer_paths")

    def mend(self) -> None:
        """Let all relays run again, and all nodes wait at each."""
        for number in self.relays:
            running = self.processes[f"relay{number}"]
            running.send_signal(signal.SIGCONT)
            if running.poll() is not None:
                self.relay(number)
        all_wait = {"waiting": len(self.relays)}
        self.until(
            lambda: all(
                self._counted(number, "fednode_relays") == all_wait
                for number in range(1, self.count + 1)
            ),
            "all wait at all relays",
        )

    def _counted(self, number: int, what: str) -> dict[str, int]:
        """Return the counts of a node's metric that are not 0, by their label."""
        words = [str(LAB), "run", str(number), "--", sys.executable, "-IS", "-c", READ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        found = re.findall(rf'^{what}{{\w+="(\w+)"}} (\d+)', done.stdout, re.MULTILINE)
        return {way: int(count) for way, count in found if int(count)}


def card(number: int) -> int:
    """Return how many bytes went through the card of a node, both ways."""
    words = [str(LAB), "run", str(number), "--", "cat", "/proc/net/dev"]
    return bytes_in(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def bytes_in(text: str) -> int:
    """Return the bytes of both ways in what Linux says about a node's card."""
    line = next(one for one in text.splitlines() if one.strip().startswith("eth0:"))
    fields = line.split(":")[1].split()
    return int(fields[0]) + int(fields[8])


def seconds(text: Any) -> float:
    if isinstance(text, int | float):
        return float(text)
    return datetime.fromisoformat(str(text)).timestamp()


def fail(text: str) -> None:
    """End the script: a bar is not met."""
    print(f"FAILED: {text}", flush=True)
    raise SystemExit(1)


def gaps(times: list[float]) -> list[float]:
    """Return the times between two rounds."""
    return [after - before for before, after in itertools.pairwise(times)]


def say(text: str) -> None:
    print(text, flush=True)
