"""A mesh behind NATs while relays, sites and ports fail: scenarios of behind_nat."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.nat_mesh import RELAYS, Mesh, fail, gaps, lab, say, seconds

CUT_S = 12.0


def closed(count: int) -> None:
    """Let NATs let out TCP to port 443 alone."""
    for number in range(1, count + 1):
        lab("only", number, 443)


def paced(folder: Path, relays: int, direct: tuple[int, ...] = ()) -> Mesh:
    """Return a mesh whose rounds take a tenth of a second at least, so that faults meet rounds."""
    return Mesh(folder / "mesh", 5, 0, relays, direct, ("rounds.min_interval_s=0.1",))


def told(mesh: Mesh, since: float, kinds: tuple[str, ...], only: int = 0) -> list[str]:
    """Return the records of these kinds of all nodes, or of one, after a moment."""
    return [
        f"{one['node']}: {one['text']}"
        for number in ([only] if only else range(1, mesh.count + 1))
        for one in mesh.records(number)
        if one["event"] in kinds and seconds(one["time"]) > since
    ]


def pause_after(mesh: Mesh, since: float, without: int = 0) -> float:
    """Return the longest time between two rounds of a node from a moment on."""
    numbers = [number for number in range(1, mesh.count + 1) if number != without]
    each = [mesh.adopted(number) for number in numbers]
    return max(max(gaps([since, *(one for one in times if one > since)])) for times in each)


def faults(relays: int, *each: Callable[[Mesh], None]) -> Callable[[Path], None]:
    """Return a scenario in which faults come one after the other, in one mesh."""

    def play(folder: Path) -> None:
        closed(5)
        with paced(folder, relays).running() as mesh:
            for number, fault in enumerate(each):
                if number:
                    mesh.mend()
                mesh.until(mesh.all_at(max(mesh.rounds()) + 10), "10 rounds")
                fault(mesh)

    return play


def lost(
    mesh: Mesh,
    what: str,
    lose: Callable[[subprocess.Popen[bytes]], None],
    most_s: float,
    never: tuple[str, ...],
) -> None:
    """The relay that carries most is lost: no pause above most_s, no record of `never`."""
    number = carrying(mesh)
    since = time.time()
    lose(mesh.processes[f"relay{number}"])
    at = max(mesh.rounds())
    mesh.until(mesh.all_at(at + 30), "30 rounds more")
    longest, seen = pause_after(mesh, since), told(mesh, since, never)
    say(f"relay {what}: longest pause {longest:.2f} s; {', '.join(never)}: {seen}")
    if longest > most_s or seen:
        fail(f"a pause above {most_s:g} s, or {never}")


def carrying(mesh: Mesh) -> int:
    """Return the number of the relay that carries most calls of node 2."""
    peers = mesh.status(2, asker=2)["peers"]
    counts = Counter(one["path"].removeprefix("relay ") for one in peers)
    return next(number for number, at in RELAYS.items() if at == counts.most_common(1)[0][0])


def killed(mesh: Mesh) -> None:
    """A relay is killed (-9) while a second one is left."""
    lost(mesh, "killed", lambda one: one.kill(), 2.0, ("peer.suspect", "peer.dead"))


def hung(mesh: Mesh) -> None:
    """A relay is stopped (SIGSTOP) while a second one is left: deadline_s is 5 s."""
    lost(mesh, "hung", lambda one: one.send_signal(signal.SIGSTOP), 8.0, ("peer.dead",))


def drained(mesh: Mesh) -> None:
    """A relay is told to end (SIGTERM) while a second one is left: no round waits."""
    lost(mesh, "drained", lambda one: one.terminate(), 1.0, ("peer.suspect", "peer.dead"))


def none(mesh: Mesh) -> None:
    """The only relay is killed, and comes back."""
    since = time.time()
    log = mesh.folder / "relay1.log"
    began = log.read_text().count("relay relay1 of")
    mesh.processes["relay1"].kill()
    at = max(mesh.rounds())
    took = mesh.until(mesh.all_at(at + 3), "rounds alone")
    said = told(mesh, since, ("relay.none",))
    say(f"no relay: {len(said)} records of it; rounds alone after {took:.2f} s")
    if len(said) != mesh.count or took > 10:
        fail(f"each node says it once, and trains alone within 10 s: {said}")
    mesh.relay(1)
    mesh.until(lambda: log.read_text().count("relay relay1 of") > began, "the relay's return")
    since = time.time()
    back = mesh.until(
        lambda: len(told(mesh, since, ("peer.alive",))) >= mesh.count * (mesh.count - 1),
        "all alive again",
    )
    say(f"relay back: all peers alive after {back:.2f} s")
    if back > 5:
        fail("back within 5 s")


def cut(mesh: Mesh) -> None:
    """One site is cut off for twelve seconds: it says so once, goes on alone, and comes back."""
    since = time.time()
    lab("cut", 5)
    at = mesh.round(5)
    took = mesh.until(lambda: mesh.round(5) >= at + 3, "rounds alone")
    mesh.until(lambda: time.time() - since >= CUT_S, "twelve seconds")
    said = told(mesh, since, ("relay.none",))
    longest = pause_after(mesh, since, without=5)
    say(f"cut off: {len(said)} records of it; rounds alone after {took:.2f} s")
    say(f"the others meanwhile: longest pause {longest:.2f} s")
    if len(said) != 1 or took > 10:
        fail(f"the site says it once, and trains alone within 10 s: {said}")
    lab("mend", 5)
    mended = time.time()
    back = mesh.until(
        lambda: len(told(mesh, mended, ("peer.alive",), only=5)) >= mesh.count - 1,
        "all alive again",
    )
    say(f"mended: all peers alive after {back:.2f} s")
    if back > 5:
        fail("back within 5 s")


def opened(folder: Path) -> None:
    """NAT 1 opens in mid-run and shuts again."""
    closed(5)
    with paced(folder, 1, direct=(1,)).running() as mesh:
        mesh.until(mesh.all_at(10), "10 rounds")
        path = paths(mesh)
        say(f"shut: {path}")
        if set(path.values()) != {f"relay {RELAYS[1]}"}:
            fail("all are relayed")
        since = time.time()
        for number in range(2, 6):
            lab("only", number, 443, 7700)
        lab("open", 1, 7700)
        took = mesh.until(lambda: reached(mesh, {"direct": 1, "relay": 3}), "direct", 60)
        say(f"opened: direct after {took:.1f} s: {paths(mesh)}")
        lab("close", 1, 7700)
        shut = mesh.until(lambda: reached(mesh, {"relay": 4}), "relayed again", 60)
        say(f"shut again: relayed after {shut:.1f} s: {paths(mesh)}")
        say(f"longest pause {pause_after(mesh, since):.1f} s")
        if took > 30 or shut > 15:
            fail("direct within 30 s, relayed within 15 s")


def reached(mesh: Mesh, ways: dict[str, int]) -> bool:
    """Tell whether nodes 2 to 5 reach their peers in these ways, by their own metrics."""
    return all(mesh.ways(number) == ways for number in range(2, mesh.count + 1))


def paths(mesh: Mesh) -> dict[str, str]:
    """Return how nodes 2 to 5 reach node 1, by their own word."""

    def one(number: int) -> str:
        said = mesh.status(number, asker=number)
        peers = {one["name"]: one for one in said.get("peers", [])}
        return str(peers.get("n1", {}).get("path", said.get("fault", "")))

    numbers = range(2, mesh.count + 1)
    with ThreadPoolExecutor() as threads:
        return {
            f"n{number}": path
            for number, path in zip(numbers, threads.map(one, numbers), strict=True)
        }
