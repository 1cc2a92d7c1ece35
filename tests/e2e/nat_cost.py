"""What a relay costs behind NATs: bytes at a node's card, and the time of rounds.

Scenarios of behind_nat. `python -m tests.e2e.nat_cost take|send FOLDER WAY` is one end of `sizes`,
inside of a node's namespace.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from pathlib import Path

import uvloop
import yaml

from fednode.errors import Unreachable
from fednode.identity.identity import NodeIdentity
from fednode.identity.keys import read_public
from fednode.identity.roster import Roster
from fednode.settings.peers import load_peers
from fednode.transports.address import RelayEntry
from fednode.transports.grpc import GrpcTransport
from tests.contract.faults import pause
from tests.e2e.nat_faults import closed
from tests.e2e.nat_mesh import FEDNODE, LAB, RELAYS, Mesh, bytes_in, card, fail, gaps, lab, say
from tests.unit.identity.people import SmallMesh

SIZES = {4 << 10: (400, 1.04), 32 << 20: (3, 1.01)}
"""Bytes of a frame: how often it is sent, and how many times the direct bytes it may take."""
PORT = 7700
TRIES = 100
PATIENT = ("rounds.deadline_s=60", "rounds.start.peers=4")
"""No round goes on without a node that is late, so that the bits depend on nothing but the mesh."""
NAMES = ("from", "to")


def rounds(folder: Path) -> None:
    """100 rounds behind NATs end with the same bits as with NATs open; bytes at node 1's card."""
    digests = set[str]()
    for way in ("relayed", "direct"):
        direct = (1, 2, 3, 4, 5) if way == "direct" else ()
        closed(5)
        for number in direct:
            lab("only", number, "any")
            lab("open", number, PORT)
        mesh = Mesh(folder / way, direct=direct, settings=PATIENT)
        before = card(1)
        with mesh.running():
            mesh.until(mesh.all_at(100), "100 rounds")
            used, median = card(1) - before, statistics.median(gaps(mesh.adopted(1)))
            peer = mesh.status(2)
            paths = {one["path"] for one in peer.get("peers", ())}
            say(f"{way}: median round {median:.3f} s, {used:,} bytes")
            say(f"status of n2 asked by n1: {peer.get('fault') or paths}")
        digests |= mesh.digests()
    say(f"digests: {digests}")
    if len(digests) != 1:
        fail("the bits differ")


def sizes(folder: Path) -> None:
    """Bytes at the card of a node that sends frames of 4 KiB and 32 MiB, relayed and direct."""
    folder.mkdir()
    mesh, file = SmallMesh("lab"), folder / "peers.yaml"
    for name in (*NAMES, "relay"):
        mesh.write(folder / name, name)
    peers = [{"name": name, "address": "relay"} for name in NAMES]
    relays = [{"name": "relay", "address": RELAYS[1]}]
    key = {"mesh": "lab", "mesh_key": mesh.mesh_key_text}
    file.write_text(yaml.safe_dump({**key, "peers": peers, "relays": relays}))
    lab("open", 2, PORT)
    words = [*FEDNODE, "relay", "--state", folder / "relay", "--peers", file]
    found: dict[str, dict[int, float]] = {}
    running = [subprocess.Popen([*map(str, words), "--listen", RELAYS[1]])]
    try:
        for way in ("direct", "relayed"):
            running.append(subprocess.Popen(_end("take", 2, folder, way)))
            sent = subprocess.run(
                _end("send", 1, folder, way), capture_output=True, text=True, check=True
            )
            lines = (line.split() for line in sent.stdout.splitlines())
            found[way] = {int(size): float(each) for size, each in lines}
            running.pop().kill()
    finally:
        for one in running:
            one.kill()
            one.wait()
    for size, (_, most) in SIZES.items():
        ratio = found["relayed"][size] / found["direct"][size]
        say(
            f"{size:,} bytes: {found['direct'][size]:,.0f} at the card direct, "
            f"{found['relayed'][size]:,.0f} relayed, {ratio:.4f} times"
        )
        if ratio > most:
            fail(f"at most {most:g} times")


def _end(what: str, number: int, folder: Path, way: str) -> list[str]:
    words = [LAB, "run", number, "--", sys.executable, "-m", "tests.e2e.nat_cost", what, folder]
    return [str(one) for one in (*words, way)]


async def end(what: str, folder: Path, way: str) -> None:
    """Take frames until killed, or send frames and print what one costs at the card."""
    peers = load_peers(folder / "peers.yaml")
    own = NodeIdentity(folder / ("to" if what == "take" else "from")).own
    roster, relayed = Roster(peers.mesh, read_public(str(peers.mesh_key))), way == "relayed"
    relays = [RelayEntry("relay", RELAYS[1])] if relayed else []
    transport = GrpcTransport(own, roster, relays, calls_s=1e6)

    async def answer(frame: bytes, caller: str) -> bytes:
        return b"ok"

    if what == "take":
        await transport.listen("relay" if relayed else f"0.0.0.0:{PORT}", answer)
        await asyncio.Event().wait()
    to = "relay" if relayed else f"198.51.100.2:{PORT}"
    for _ in range(TRIES):
        try:
            await transport.send(to, b"first", 5, "to")
            break
        except Unreachable:
            await pause(0.1)
    for size, (count, _) in SIZES.items():
        before = own_card()
        for _ in range(count):
            await transport.send(to, bytes(size), 60, "to")
        print(size, (own_card() - before) / count)
    await transport.close()


def own_card() -> int:
    """Return how many bytes went through the card of this namespace, both ways."""
    return bytes_in(Path("/proc/net/dev").read_text())


if __name__ == "__main__":
    uvloop.run(end(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
