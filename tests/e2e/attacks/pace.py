"""What attacks do to a node, by the pace of honest exchange with it, its memory and descriptors.

    python -m tests.e2e.attacks.pace [KIND ...] [--relay] [--seconds 4]

A turn: calm, the same attack on another node (the control: what the attacker's own work costs this
machine), the attack, rest, calm. Honest: node a sends 64 KiB each 10 ms over one connection; node b
connects anew for each exchange, ten times a second. The victim has 1,024 descriptors. With --relay,
the victim is a relay, and the honest nodes reach node v through it.

A row tells, in percent of the calm pace, that of a, that of a under the control, and that of b;
then the most MiB and descriptors that the victim had more than before, and the slowest exchange.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.attacks import ends
from tests.e2e.attacks.doors import AT_RELAYS, ATTACKS, MEMBERS, STRANGERS
from tests.e2e.attacks.http2 import rest

STOP_MIB: Final = 900.0
CALM_S: Final = 2.5
DESCRIPTORS: Final = 1024
SIZE, PAUSE_MS = 64 << 10, 10
FRESH_SIZE, FRESH_PAUSE_MS = 4 << 10, 100
ENDS: Final = (sys.executable, "-m", "tests.e2e.attacks.ends")
Process = subprocess.Popen[str]


@dataclass
class Pace:
    """Exchanges: how many a second, the slowest in ms, how many failed, and why the last one."""

    rate: float = 0.0
    slowest: float = 0.0
    failed: int = 0
    why: str = ""


class Honest:
    """A process that sends for ever; each line it prints is one exchange."""

    def __init__(self, words: list[str], fresh: bool) -> None:
        more = {"FRESH": "1"} if fresh else {}
        self.run = _start((*ENDS, "honest", *words), {**os.environ, **more})
        self.rows: list[tuple[float, float, str]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.run.stdout is not None
        for line in self.run.stdout:
            when, took, why = line.rstrip("\n").split(" ", 2)
            self.rows.append((float(when), float(took), why))

    def between(self, begin: float, end: float) -> Pace:
        """Return what came of the exchanges that ended between two moments."""
        rows = [row for row in self.rows if begin <= row[0] < end]
        fine = [took for _, took, why in rows if not why]
        faults = [why for _, _, why in rows if why]
        rate = len(fine) / (end - begin)
        return Pace(rate, max(fine, default=0.0), len(faults), faults[-1] if faults else "")


@dataclass
class Hit:
    """One attack: when, what it said, and what the victim had more than before at most."""

    begin: float
    end: float
    said: str
    mib: float
    descriptors: int


def _start(words: tuple[str, ...], env: dict[str, str] | None = None) -> Process:
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )


def _served(*words: str) -> tuple[Process, str]:
    """Start an end with few descriptors; return it, and its address."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    run = subprocess.Popen(
        (*ENDS, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=bound
    )
    assert run.stdout is not None
    return run, run.stdout.readline().strip()


def _end(run: Process) -> None:
    assert run.stdin is not None
    with contextlib.suppress(OSError):
        run.stdin.close()
    try:
        run.wait(8)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()


def held_by(pid: int) -> tuple[float, int]:
    """Return the MiB of resident memory and the descriptors of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return kib / 1024, len(os.listdir(f"/proc/{pid}/fd"))


def attack(kind: str, folder: Path, to: str, seconds: float, pid: int) -> Hit:
    """Run an attack, and watch its victim."""
    (mib, count), began = held_by(pid), time.time()
    words = (sys.executable, "-m", "tests.e2e.attacks.doors", kind, str(folder), to, str(seconds))
    run, most, most_count = _start(words), mib, count
    while run.poll() is None and time.time() < began + seconds + 25:
        now, now_count = held_by(pid)
        most, most_count = max(most, now), max(most_count, now_count)
        if now > mib + STOP_MIB:
            break
        rest(0.03)
    if run.poll() is None:
        run.kill()
    ended = time.time()
    said = run.communicate()[0].strip()
    return Hit(began + 0.7, ended, said, most - mib, most_count - count)


def turn(kind: str, relayed: bool, seconds: float) -> dict[str, Any]:
    """Run one attack with all that goes before and after it."""
    with tempfile.TemporaryDirectory(prefix="pace-") as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        ends.keys(folder)

        def served(*words: str) -> tuple[Process, str]:
            run, at = _served(*words)
            stack.callback(_end, run)
            return run, at

        victim, to = served("relay" if relayed else "serve", made, *(() if relayed else ("v",)))
        decoy, instead = served("serve", made, "decoy")
        through = [to] if relayed else []
        if relayed:
            served("behind", made, "v", to)
        at = "relay" if relayed else to
        steady = Honest([made, "a", at, "v", str(SIZE), str(PAUSE_MS), *through], False)
        fresh = Honest([made, "b", at, "v", str(FRESH_SIZE), str(FRESH_PAUSE_MS), *through], True)
        stack.callback(_end, steady.run)
        stack.callback(_end, fresh.run)

        def calm() -> tuple[float, float]:
            rest(1.5)
            begin = time.time()
            rest(CALM_S)
            return begin, time.time()

        rest(1.5)
        first = calm()
        other = attack("spin" if relayed else kind, folder, instead, seconds, decoy.pid)
        hit = attack(kind, folder, to, seconds, victim.pid)
        last = calm()
        alive = victim.poll() is None
        return {
            "calm": statistics.mean(steady.between(*span).rate for span in (first, last)),
            "calm fresh": statistics.mean(fresh.between(*span).rate for span in (first, last)),
            "control": steady.between(other.begin, other.end).rate,
            "steady": steady.between(hit.begin, hit.end),
            "fresh": fresh.between(hit.begin, hit.end),
            "hit": hit,
            "alive": alive,
        }


def show(kind: str, found: dict[str, Any]) -> None:
    """Print a row of the table."""
    steady, fresh, hit = found["steady"], found["fresh"], found["hit"]
    calm, calm_fresh = found["calm"] or 1e-9, found["calm fresh"] or 1e-9
    failed = steady.failed + fresh.failed
    notes = [] if found["alive"] else ["the victim died"]
    notes += [f"{failed} failed: {steady.why or fresh.why}"] if failed else []
    print(
        f"| {kind} | {steady.rate / calm:.0%} | {found['control'] / calm:.0%} "
        f"| {fresh.rate / calm_fresh:.0%} | +{hit.mib:.0f} | +{hit.descriptors} "
        f"| {max(steady.slowest, fresh.slowest):.0f} | {'; '.join(notes)[:100]} | {hit.said[:200]}",
        flush=True,
    )


def main() -> None:
    """Print a row for each kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--relay", action="store_true", help="attack a relay")
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    kinds = given.kinds or [*MEMBERS, *STRANGERS, *(AT_RELAYS if given.relay else ())]
    if unknown := set(kinds) - set(ATTACKS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    print("| attack | pace | control | fresh | MiB | descriptors | slowest, ms | | attacker |")
    print("|---|---:|---:|---:|---:|---:|---:|---|---|")
    for kind in kinds:
        show(kind, turn(kind, given.relay, given.seconds))


if __name__ == "__main__":
    main()
