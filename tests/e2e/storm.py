"""A daemon under fire: frames that are wrong in every way, and random bytes on its port.

    python -m tests.e2e.storm FOLDER FRAMES SECONDS

Two daemons' worth of node (real drivers, stores and TLS) run in this process and exchange rounds; a
third member sends them FRAMES mutated frames, and for SECONDS connections bring
random bytes. Prints one JSON object: what was sent and refused, memory early and late, and rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fednode.core.rate_limit import Quota
from fednode.core.reputation import Tolerance
from fednode.core.settings import (
    PRESETS,
    LimitSettings,
    RoundSettings,
    StartSettings,
)
from fednode.errors import FednodeError
from fednode.identity.roster import Roster
from fednode.lab.sim.setup import Setup
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.telemetry import Refusals
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.runtime.driver import Driver
from fednode.runtime.worker import Learning
from fednode.storage.store import Store
from fednode.transports import connection_limiter
from fednode.transports.grpc import GrpcTransport
from fednode.wire import codec
from tests.contract.faults import pause
from tests.unit.identity.people import SmallMesh
from tests.unit.wire.samples import START, built, split

NAMES: Final = ("a", "b", "c")
SENDERS: Final = 16
NOISES: Final = 20
# As if there were no quota, so that every frame is read; and no quarantine, so that all are.
OPEN: Final = LimitSettings(messages_s=1e7, megabytes_s=1e5)


def memory_kib() -> int:
    """Return this process's resident memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame changed somehow; most say their right lengths again."""
    body = bytearray(frame[START.size :])
    for _ in range(chance.choice([1, 1, 2, 5, 40])):
        at = chance.randrange(len(body) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(body):
            body[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            body[at:at] = chance.randbytes(chance.choice([1, 2, 9, 200]))
        elif kind == 2:
            del body[at : at + chance.choice([1, 4, 60])]
        elif at < len(body):
            body[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
    if chance.random() < 0.1:
        return frame[: START.size] + body
    size = min(len(split(frame)[0]), len(body))
    return built(bytes(body[:size]), bytes(body[size:]))


class Node:
    """One honest node in this process."""

    def __init__(self, folder: Path, name: str, mesh: SmallMesh) -> None:
        roster, refusals = mesh.roster(*NAMES), Refusals()
        self.name, self.refusals = name, refusals
        self.transport = transport(mesh, name, roster, refusals)
        self.store = Store(folder / name)
        learner = QuadraticLearner(name)
        peers = tuple(one for one in NAMES if one != name)
        rounds = RoundSettings("async", 0, min_interval_s=0.2, start=StartSettings(1, 10.0))
        plan = Setup(
            policy=ZeroDFL,
            config=ZeroDFLConfig(),
            rounds=rounds,
            seed=1,
            membership=PRESETS["wan"],
            tolerance=Tolerance(budget=10**9),
        )
        self.kernel = plan.build(name, peers, learner)(self.store.latest())
        self.driver = Driver(
            kernel=self.kernel,
            transport=self.transport,
            store=self.store,
            learning=Learning(learner=learner, dtype="float16"),
            addresses={},
            members=roster,
            refusals=refusals,
            limits=OPEN,
        )
        self.driver._quota = Quota(OPEN, busy_share=1.0)

    @property
    def round(self) -> int:
        return self.kernel.policy.state().round


def transport(mesh: SmallMesh, name: str, roster: Roster, refusals: Refusals) -> GrpcTransport:
    """Return a transport over TLS that shows a certificate."""
    return GrpcTransport(mesh.own(name), roster, note=refusals.note, calls_s=1e6)


async def frames(count: int, hostile: GrpcTransport, to: str, node: Node) -> Counter[str]:
    """Send mutated frames; return the verdicts."""
    chance, verdicts = random.Random(11), Counter[str]()
    context = node.kernel.context
    state = node.kernel.policy.state()
    seeds = [
        codec.encode(replace(context.message(number, phase, tensors), sender="c"), "float16")
        for number in (0, 1, 5)
        for phase, tensors in (("prompts", state.tensors), ("hello", None), ("done", None))
        for tensors in [tensors or type(state.tensors)()]
    ]
    left = iter(range(count))

    async def send() -> None:
        for _ in left:
            frame = mutated(chance.choice(seeds), chance)
            try:
                code, *_ = codec.decode_ack(await hostile.send(to, frame, 30.0, "a"))
                verdicts[code] += 1
            except FednodeError as fault:
                verdicts[type(fault).__name__] += 1

    await asyncio.gather(*(send() for _ in range(SENDERS)))
    return verdicts


async def noise(seconds: float, address: str) -> int:
    """Bring random bytes to a port from many connections; return how many there were."""
    work = (one_noise(seconds, address, seed) for seed in range(NOISES))
    return sum(await asyncio.gather(*work))


async def one_noise(seconds: float, address: str, seed: int) -> int:
    """Bring random bytes over one connection after another."""
    chance, made = random.Random(seed), 0
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(5.0):
                reader, writer = await asyncio.open_connection(host, int(port))
                data = chance.randbytes(chance.choice([1, 10, 1000, 100_000]))
                # Half of them begin as a TLS handshake does.
                writer.write(b"\x16\x03\x01" + data if chance.random() < 0.5 else data)
                with contextlib.suppress(OSError):
                    await writer.drain()
                    await reader.read(100)
                writer.close()
        made += 1
    return made


async def storm(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Run it all; return what was found."""
    connection_limiter.DOOR_BYTES = 0  # type: ignore[misc]
    mesh = SmallMesh("simulated")
    nodes = [Node(folder, name, mesh) for name in NAMES[:2]]
    at = {
        node.name: await node.transport.listen("127.0.0.1:0", node.driver.on_frame)
        for node in nodes
    }
    for node in nodes:
        node.driver.addresses.update({one: at[one] for one in at if one != node.name})
        node.driver.addresses["c"] = "127.0.0.1:1"
    running = [asyncio.create_task(node.driver.run()) for node in nodes]
    hostile = transport(mesh, "c", mesh.roster(*NAMES), Refusals())
    samples: list[tuple[int, int]] = []
    watching = asyncio.create_task(watch(lambda: samples.append((memory_kib(), nodes[1].round))))
    began = time.monotonic()
    verdicts, connections = await asyncio.gather(
        frames(count, hostile, at["a"], nodes[0]), noise(seconds, at["a"])
    )
    took = time.monotonic() - began
    watching.cancel()
    alive = all(not task.done() for task in running)
    final = [node.round for node in nodes]
    for node in nodes:
        node.driver.stop()
    await asyncio.gather(*running, return_exceptions=True)
    await hostile.close()
    third = max(1, len(samples) // 3)
    return {
        "frames": sum(verdicts.values()),
        "verdicts": dict(verdicts),
        "connections_of_noise": connections,
        "seconds": round(took),
        "refused": dict(nodes[0].refusals.counts),
        "memory_kib": [samples[third][0], samples[-1][0]],
        "honest_rounds": [samples[third][1], *final],
        "alive": alive,
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


async def watch(look: Callable[[], None]) -> None:
    """Look once a second."""
    while True:
        look()
        await pause(1.0)


if __name__ == "__main__":
    place, many, length = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    print(json.dumps(asyncio.run(storm(place, many, length))))
