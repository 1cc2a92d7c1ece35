"""What a relay sees: a scenario of behind_nat that searches all bytes that a relay carried."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import numpy as np
import uvloop

from fednode.core.types import Message
from fednode.identity.certificate import shown_by
from fednode.identity.keys import load, node_id
from fednode.storage.store import read_snapshot
from fednode.transports.links import Links
from fednode.transports.opening import RelayAt
from fednode.transports.session import Ends, showing
from fednode.wire import codec
from fednode_bootstrap.relay_host import key_in
from tests.contract.faults import pause
from tests.e2e.nat_faults import closed
from tests.e2e.nat_mesh import Mesh, fail, say

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
    at = RelayAt(mesh.relays[1], node_id(key_in(mesh.folder / "relay1")))
    came, over = asyncio.Event(), asyncio.Event()

    def links(number: int) -> Links:
        context = showing(*shown_by(load(_key(mesh, number)), mesh.name(number))())
        return Links([at], lambda: context, lambda _: at.id)

    async def take(ends: Ends, relay: str, caller: str) -> None:
        while await ends.reader.read(1 << 16):
            came.set()

    held = read_snapshot(mesh.state(1)).used(False)[0]
    message = Message(
        mesh=MESH, fingerprint="ab" * 32, policy="promptfl", sender=mesh.name(1), round=1,
        phase="prompts", tensors=held,
    )  # fmt: skip
    called, caller = links(2), links(1)
    called.wait(take)
    while not called.links[0].up:
        await pause(0.05)
    ends, _ = await caller.dial(node_id(load(_key(mesh, 2))))
    ends.writer.write(codec.encode(message, "float32"))
    async with asyncio.timeout(10):
        await came.wait()
    ends.writer.close()
    over.set()
    for one in (called, caller):
        with contextlib.suppress(OSError):
            await one.close()


def _key(mesh: Mesh, number: int) -> Path:
    return mesh.state(number) / "identity" / "node.key"
