"""A site whose images have planted names, and whole nodes over mutual TLS in this process.

The planted names are names of folders and files, a class name that is not told, patients' ids and
names in DICOM tags, and texts of tags that damaged files have in their errors.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from fednode.app.assemble import driver_of
from fednode.app.mesh import Mesh, connect
from fednode.app.plan import NodePlan, learner_of, make, privacy_of
from fednode.app.servers import Servers
from fednode.learn.learner import Learner
from fednode.observe.client import Client
from fednode.runtime.driver import Door, Driver
from fednode.storage.store import Store
from fednode.transports.ports import free_ports
from tests.unit.data.test_dicom import dicom, slope
from tests.unit.identity.people import SmallMesh

MESH: Final = "m"
FILES, DAMAGED, SCANS, ERRORS = 64, 60, 37, 37
PLANT: Final = re.compile(rb"(?i)canary[-_ ^]?\d{3}")
CLASS: Final = b"canary-001"
"""The planted name that is a class name."""


def plant(folder: Path) -> tuple[Path, int]:
    """Write a site's images; return their folder and how many names were planted."""
    names: Iterator[str] = (f"canary-{number:03}" for number in range(1000))
    root = folder / next(names) / "images"
    classes = [root / "lesion", root / "cyst", root / next(names)]  # the last class is a plant, too
    for one in classes:
        one.mkdir(parents=True)
    noise = np.random.default_rng(1)
    for number in range(FILES):
        pixels = noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(classes[number % 3] / f"{next(names)}.png")
    for number in range(DAMAGED):
        (classes[number % 3] / f"{next(names)}.jpg").write_bytes(b"\xff\xd8\xff no image")
    for number in range(SCANS):
        path, name = classes[number % 3] / f"scan-{number}.dcm", f"Doe^{next(names)}"
        dicom(path, slope(), PatientID=next(names), PatientName=name)
    for number in range(ERRORS):
        path, odd = classes[number % 3] / f"odd-{number}.dcm", next(names).upper().replace("-", "_")
        dicom(path, slope(), PhotometricInterpretation=odd)
    return root, int(next(names).removeprefix("canary-"))


def damage(root: Path) -> None:
    """Remove some images, and write over others what is no image."""
    for number, path in enumerate(sorted(root.rglob("*.png"))[:8]):
        if number % 2:
            path.write_bytes(b"no image")
        else:
            path.unlink()


def found(content: bytes, allowed: bytes = b"") -> set[bytes]:
    """Return the planted names in a content, but for the allowed one."""
    return set(PLANT.findall(content)) - {allowed}


def keyed(folder: Path, *names: str) -> SmallMesh:
    """Write a certificate for each node, and the peers.yaml that lists them; a is a sponsor."""
    mesh = SmallMesh(MESH)
    lines = [f"mesh: {MESH}", f"mesh_key: {mesh.mesh_key_text}", "peers:"]
    for name, port in zip(names, free_ports(len(names)), strict=True):
        mesh.write(folder / name, name)
        lines.append(f'  - {{name: {name}, address: "127.0.0.1:{port}"}}')
    (folder / "peers.yaml").write_text("\n".join(lines) + "\n")
    return mesh


@dataclass
class Tape:
    """What a node says to other nodes, before TLS: its frames and its answers to theirs."""

    frames: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def more(self, kept: list[bytes], count: int) -> bytes:
        """Wait for so many more entries of `frames` or `answers`, and return all of them."""
        wanted = len(kept) + count
        while len(kept) < wanted:
            self.news.clear()
            await self.news.wait()
        return b"\n".join(kept)

    def clear(self) -> None:
        """Forget what was said."""
        self.frames.clear()
        self.answers.clear()

    def wrap(self, mesh: Mesh, door: Door) -> Callable[..., object]:
        """Record what a transport sends from now on; return the handler that records answers."""
        send = mesh.transport.send

        async def sent(to: str, frame: bytes, timeout_s: float, who: str = "") -> bytes:
            self.frames.append(frame)
            self.news.set()
            return await send(to, frame, timeout_s, who)

        async def answered(frame: bytes, caller: str) -> bytes:
            answer = await door.on_frame(frame, caller)
            self.answers.append(answer)
            self.news.set()
            return answer

        mesh.transport.send = sent  # type: ignore[method-assign]
        return answered


@dataclass
class Node:
    """A whole node in this process: what `fednode start` assembles."""

    plan: NodePlan
    mesh: Mesh
    servers: Servers
    driver: Driver
    learner: Learner
    tape: Tape

    async def until(self, kind: str) -> None:
        """Wait for a record of a kind."""
        async for one in self.servers.events.follow(0, "info"):
            if one.record.kind == kind:
                return


@asynccontextmanager
async def running(
    folder: Path, name: str, *flags: str, loaded: Callable[[], None] = lambda: None
) -> AsyncIterator[Node]:
    """Run a node of the peers.yaml in a folder until the block ends.

    loaded: called once model and images are loaded, before the first round.
    """
    plan = make(folder / "peers.yaml", None, name, flags, folder / name)
    mesh, door, tape, store = connect(plan), Door(), Tape(), Store(plan.state)
    servers = Servers(plan, mesh, store)
    mesh.transport.add_service(servers.register)
    try:
        await servers.open()
        await mesh.transport.listen(plan.address, tape.wrap(mesh, door))  # type: ignore[arg-type]
        learner = await asyncio.to_thread(learner_of, plan.settings, name)
        driver = driver_of(plan, mesh, store, learner, privacy_of(plan, learner), servers)
        await servers.attach(driver, learner)
        if mesh.sponsor is not None:
            mesh.sponsor.attach(driver, learner.backbone)
        door.open(driver.on_frame)
        loaded()
        task = asyncio.create_task(driver.run())
        try:
            yield Node(plan, mesh, servers, driver, learner, tape)
        finally:
            driver.stop()
            await task
    finally:
        await servers.close()
        await mesh.transport.close()
        store.close()


async def status(client: Client, address: str) -> bytes:
    """Return what a node answers to `fednode status`."""
    return str(await client.status(address)).encode()


async def watch(client: Client, address: str) -> bytes:
    """Return a node's stored events of every level."""
    events = client.watch(address, 0, "debug", follow=False)
    return "\n".join([str(one) async for one in events]).encode()


async def history(client: Client, address: str) -> bytes:
    """Return the figures of a node's rounds."""
    return "\n".join(map(str, await client.history(address))).encode()


ASKED: Final = {"status": status, "watch": watch, "history": history}
