"""What a relay sees: a scenario of behind_nat that searches all bytes that a relay carried."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import numpy as np
import uvloop

from fednode.core.types import Message
from fednode.identity.identity import NodeIdentity
from fednode.identity.keys import read_public
from fednode.identity.roster import Roster
from fednode.settings.peers import load_peers
from fednode.transports.address import RelayEntry
from fednode.transports.relay_client import RelayClient
from fednode.transports.relay_service import DIAL, TO
from fednode.wire import codec
from tests.e2e.nat_faults import closed
from tests.e2e.nat_mesh import Mesh, fail, say
from tests.unit.storage.stored import read_snapshot

MESH = "clinics-of-the-north"
NAMES = "st-elsewhere-"
ROUNDS = 30
WINDOW = 12
"""Bytes of prompts that are searched for; so many do not occur by chance."""


def secrets(folder: Path) -> None:
    """Search what a relay carried; then plant a message in plain text, which the search finds."""
    closed(5)
    mesh = Mesh(folder / "mesh", 3, rounds=ROUNDS, recorded=True, names=NAMES, mesh=MESH)
    with mesh.running():
        mesh.until(mesh.all_at(ROUNDS), f"{ROUNDS} rounds")
        mesh.status(2)
        wanted = _wanted(mesh)
        carried = mesh.carried.read_bytes()
        found = _found(carried, wanted)
        say(f"{len(carried):,} bytes carried, {len(wanted)} secrets searched for, found: {found}")
        for number in range(1, mesh.count + 1):
            mesh.processes[mesh.name(number)].kill()
        uvloop.run(_plant(mesh))
        planted = _found(mesh.carried.read_bytes()[len(carried) :], wanted)
        say(f"of a planted message the same search finds: {planted}")
    if found or not carried:
        fail("the relay saw a secret, or carried nothing")
    if set(planted) != {"the mesh", "a name", "a setting", "prompts"}:
        fail("the search finds what is planted")


def _wanted(mesh: Mesh) -> list[tuple[str, bytes]]:
    """Return what must not be seen: what it is, and its bytes."""
    names = [mesh.name(number) for number in range(1, mesh.count + 1)]
    wanted = [("a name", name.encode()) for name in names] + [("the mesh", MESH.encode())]
    wanted += [("a setting", word) for word in (b"promptfl", b"closed-form", b"deadline")]
    for number in range(1, mesh.count + 1):
        held = read_snapshot(mesh.state(number)).used(False)[0]
        for values in held.values():
            for dtype in (np.float32, np.float16):
                raw = np.ascontiguousarray(values, dtype).tobytes()
                wanted += [("prompts", raw[at : at + WINDOW]) for at in range(0, len(raw), 64)]
    return [(what, data) for what, data in wanted if len(set(data)) > 2]


def _found(carried: bytes, wanted: list[tuple[str, bytes]]) -> list[str]:
    return sorted({what for what, data in wanted if data in carried})


async def _plant(mesh: Mesh) -> None:
    """Send a node's prompts to another as they are, through the relay."""
    at, came = RelayEntry("relay1", mesh.relays[1]), asyncio.Event()
    peers = load_peers(mesh.folder / "peers.yaml")

    def client(number: int) -> RelayClient:
        roster = Roster(peers.mesh, read_public(str(peers.mesh_key)))
        return RelayClient([at], NodeIdentity(mesh.state(number)).own, roster)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while await reader.read(1 << 16):
                came.set()

    held = read_snapshot(mesh.state(1)).used(False)[0]
    message = Message(
        mesh=MESH, fingerprint="ab" * 32, policy="promptfl", sender=mesh.name(1), round=1,
        phase="prompts", tensors=held,
    )  # fmt: skip
    called, caller = client(2), client(1)
    async with asyncio.timeout(10), await asyncio.start_unix_server(take, called.inside):
        called.wait()
        await called.up.wait()
        call = await caller._call(caller.relays[0], DIAL, TO, mesh.name(2).encode())
        await call.write(codec.encode(message, "float32"))
        await came.wait()
        call.cancel()
    for one in (called, caller):
        await one.close()
