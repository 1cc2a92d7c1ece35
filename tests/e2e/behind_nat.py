"""A mesh of daemons, each behind a NAT of its own, for tests that run inside of nat_lab.sh.

    nat_lab.sh with 5 -- python -m tests.e2e.behind_nat SCENARIO FOLDER

The nodes n1, n2, ... run behind NATs that drop what comes in and let out TCP to port 443 alone. The
relays run on the public host. The script prints what it measured, and ends with 1 if a bar is not
met. All files of all nodes are in FOLDER, which every namespace sees.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.nat_mesh import RELAYS, Mesh, fail, gaps, lab, say, seconds

# Scenarios ----------------------------------------------------------------------------------------


def closed(count: int) -> None:
    """Let NATs let out TCP to port 443 alone."""
    for number in range(1, count + 1):
        lab("only", number, 443)


def rounds(folder: Path) -> None:
    """100 rounds behind NATs end with the same bits as with NATs open."""
    closed(5)
    relayed = Mesh(folder / "relayed")
    with relayed.running():
        relayed.until(relayed.all_at(100), "100 rounds")
        median = statistics.median(gaps(relayed.adopted(1)))
        say(f"relayed: median round {median:.3f} s, digests {relayed.digests()}")
        peer = relayed.status(2)
        say(f"status of n2 asked by n1: {peer.get('fault') or [p['path'] for p in peer['peers']]}")
    for number in range(1, 6):
        lab("only", number, "any")
        lab("open", number, 7700)
    opened = Mesh(folder / "direct", direct=(1, 2, 3, 4, 5))
    with opened.running():
        opened.until(opened.all_at(100), "100 rounds")
        direct = statistics.median(gaps(opened.adopted(1)))
        say(f"direct: median round {direct:.3f} s, digests {opened.digests()}")
    if relayed.digests() != opened.digests() or len(opened.digests()) != 1:
        fail("the bits differ")


def paced(folder: Path, relays: int, direct: tuple[int, ...] = ()) -> Mesh:
    """Return a mesh whose rounds take a tenth of a second at least, so that faults meet rounds."""
    return Mesh(folder / "mesh", 5, 0, relays, direct, ("rounds.min_interval_s=0.1",))


def suspects(mesh: Mesh, since: float, kinds: tuple[str, ...]) -> list[str]:
    """Return the records of these kinds of all nodes after a moment."""
    return [
        f"{one['node']}: {one['text']}"
        for number in range(1, mesh.count + 1)
        for one in mesh.records(number)
        if one["event"] in kinds and seconds(one["time"]) > since
    ]


def pause_after(mesh: Mesh, since: float) -> float:
    """Return the longest time between two rounds of a node from a moment on."""
    each = [mesh.adopted(number) for number in range(1, mesh.count + 1)]
    return max(max(gaps([since, *(one for one in times if one > since)])) for times in each)


def killed(folder: Path) -> None:
    """A relay is killed while a second one is left."""
    closed(5)
    with paced(folder, 2).running() as mesh:
        mesh.until(mesh.all_at(20), "20 rounds")
        since = time.time()
        mesh.processes["relay1"].kill()
        at = max(mesh.rounds())
        mesh.until(mesh.all_at(at + 60), "60 rounds more")
        longest, seen = pause_after(mesh, since), suspects(mesh, since, ("peer.suspect",))
        say(f"relay killed: longest pause {longest:.2f} s; suspects: {seen}")
        if longest > 2.0 or seen:
            fail("a pause above 2 s, or a peer was suspect")


def hung(folder: Path) -> None:
    """A relay is stopped (SIGSTOP) while a second one is left."""
    closed(5)
    with paced(folder, 2).running() as mesh:
        mesh.until(mesh.all_at(20), "20 rounds")
        since = time.time()
        mesh.processes["relay1"].send_signal(signal.SIGSTOP)
        at = max(mesh.rounds())
        mesh.until(mesh.all_at(at + 60), "60 rounds more")
        longest, seen = pause_after(mesh, since), suspects(mesh, since, ("peer.dead",))
        say(f"relay hung: longest pause {longest:.2f} s; dead: {seen}")
        if longest > 8.0 or seen:
            fail("a pause above deadline_s + 3 s, or a peer was dead")


def none(folder: Path) -> None:
    """The only relay is killed, and comes back."""
    closed(5)
    with paced(folder, 1).running() as mesh:
        mesh.until(mesh.all_at(20), "20 rounds")
        since = time.time()
        mesh.processes["relay1"].kill()
        at = max(mesh.rounds())
        took = mesh.until(mesh.all_at(at + 3), "rounds alone")
        told = suspects(mesh, since, ("relay.none",))
        say(f"no relay: {len(told)} records of it; rounds alone after {took:.2f} s")
        if len(told) != mesh.count or took > 10:
            fail(f"each node says it once, and trains alone within 10 s: {told}")
        log = mesh.folder / "relay1.log"
        mesh.relay(1)
        mesh.until(lambda: log.read_text().count("relay of") == 2, "the relay's return")
        since = time.time()
        back = mesh.until(
            lambda: len(suspects(mesh, since, ("peer.alive",))) >= mesh.count * (mesh.count - 1),
            "all alive again",
        )
        say(f"relay back: all peers alive after {back:.2f} s")
        if back > 5:
            fail("back within 5 s")


def opened(folder: Path) -> None:
    """NAT 1 opens in mid-run and shuts again."""
    closed(5)
    with paced(folder, 1, direct=(1,)).running() as mesh:
        mesh.until(mesh.all_at(20), "20 rounds")
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


TINYPROXY = """Port 3128
Listen 198.51.100.252
Timeout 600
ConnectPort 443
BasicAuth me secret
"""
SQUID = """http_port 198.51.100.252:3128
acl relays port 443
http_access deny !relays
http_access allow all
cache deny all
access_log none
cache_log /dev/null
pid_filename none
coredump_dir /tmp
"""


def proxied(folder: Path) -> None:
    """Nodes whose sites let out connections to a proxy alone: tinyproxy with a password, squid."""
    folder.mkdir()
    for number in range(1, 6):
        lab("only", number, 3128)
    for program, text, login in (("tinyproxy", TINYPROXY, "me:secret@"), ("squid", SQUID, "")):
        if shutil.which(program) is None:
            say(f"{program} is not installed: skipped")
            continue
        config = folder / f"{program}.conf"
        config.write_text(text)
        flags = ["-d", "-c"] if program == "tinyproxy" else ["-N", "-f"]
        words = [program, *flags, str(config)]
        proxy = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            through(folder / program, f"http://{login}198.51.100.252:3128")
        finally:
            proxy.kill()  # squid would wait half a minute for its clients
            proxy.wait()


def through(folder: Path, url: str) -> None:
    """60 rounds and the status of a peer through a proxy; no file of a node has the password."""
    os.environ["FEDNODE_PROXY"] = url
    mesh = Mesh(folder, rounds=60)
    with mesh.running():
        mesh.until(mesh.all_at(60), "60 rounds")
        peer = mesh.status(2)
        say(f"{folder.name}: digests {mesh.digests()}; n2 asked by n1: {peer.get('round', peer)}")
    files = [one for one in folder.rglob("*") if one.is_file()]
    wrong = [str(one) for one in files if b"secret" in one.read_bytes()]
    if int(peer.get("round", 0)) != 60:
        fail(f"status through the proxy: {peer}")
    if wrong or len(mesh.digests()) != 1:
        fail(f"the bits differ, or the password is in {wrong}")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (rounds, killed, hung, none, opened, proxied)
}


def main() -> None:
    """Play a scenario."""
    os.environ["PYTHONUNBUFFERED"] = "1"
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
    say("passed")


if __name__ == "__main__":
    main()
