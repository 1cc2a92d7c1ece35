"""A live mesh under attack: real drivers, stores and TLS in this process, and one hostile key.

By default a, b and c are honest nodes that run mesh-wide rounds (PromptFL, sync, closed-form
learner), and d is a member as well, whose key the attacker holds; see Scene.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fednode import registry
from fednode.core.settings import LAN, RoundSettings, StartSettings
from fednode.core.types import Message
from fednode.identity.certificates import Credential
from fednode.identity.roster import Roster
from fednode.lab.sim.host import Liar
from fednode.lab.sim.setup import Setup
from fednode.learn.learner import Learner
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.health import HealthService
from fednode.runtime.driver import Driver
from fednode.runtime.worker import Learning
from fednode.storage.store import Store
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from fednode.wire import codec
from tests.contract.faults import pause
from tests.unit.identity.people import SmallMesh

HONEST: Final = ("a", "b", "c")
HOSTILE: Final = "d"
NAMES: Final = (*HONEST, HOSTILE)
LIMIT_S: Final = 180.0
"""A bound for a test that hangs, on a machine that does much else; none takes nearly as long."""
ROUNDS: Final = RoundSettings(
    "sync", 0, min_interval_s=0.5, deadline_s=2.0, start=StartSettings(2, LIMIT_S)
)
NOWHERE: Final = "127.0.0.1:1"
STAGGER_S: Final = 0.3
"""Between the starts of two nodes: one loop shakes hands for all of them."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a mesh is made of. names: of all nodes that peers.yaml lists; honest: of those that are.

    policy, config: a policy and its settings. liars: how some nodes lie, from their first word on.
    """

    names: tuple[str, ...] = NAMES
    honest: tuple[str, ...] = HONEST
    rounds: RoundSettings = ROUNDS
    config: Mapping[str, Any] = field(default_factory=dict)
    learner: Callable[[str], Learner] = QuadraticLearner
    liars: Mapping[str, Liar] = field(default_factory=dict)
    policy: str = "promptfl"


USUAL: Final = Scene()


class Mouth(GrpcTransport):
    """A transport that says what a traitor makes of its node's messages."""

    liar: Liar | None = None

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver what is said in place of a frame."""
        if self.liar is None:
            return await super().send(to, frame, timeout_s, who)
        reply = codec.encode_ack("ok", "")
        for _, message in self.liar.say(who, codec.decode(frame)):
            reply = await super().send(to, codec.encode(message, "float32"), timeout_s, who)
        return reply


class Node:
    """One node in this process."""

    def __init__(
        self, folder: Path, name: str, transport: GrpcTransport, roster: Roster, scene: Scene
    ) -> None:
        self.name, self.transport = name, transport
        self.store = Store(folder / name)
        self.learner = scene.learner(name)
        chosen = registry.policy(scene.policy)
        membership = replace(LAN, probe_interval_s=1.0, probe_timeout_s=5.0)
        config = chosen.config_type(**scene.config)
        plan = Setup(policy=chosen, config=config, rounds=scene.rounds, membership=membership)
        peers = tuple(one for one in scene.names if one != name)
        self.kernel = plan.build(name, peers, self.learner)(self.store.latest())
        transport.add_service(HealthService().register)
        self.driver = Driver(
            kernel=self.kernel,
            transport=transport,
            store=self.store,
            learning=Learning(learner=self.learner),
            addresses={},
            members=roster,
        )

    @property
    def round(self) -> int:
        """Rounds that it adopted."""
        return self.kernel.policy.state().round


class Mesh:
    """The nodes, where they are, and the attacker's key."""

    def __init__(self, folder: Path, scene: Scene) -> None:
        self.scene = scene
        self.certificates = SmallMesh("simulated")
        self.ids = {name: self.certificates.id(name) for name in scene.names}
        self.nodes: dict[str, Node] = {}
        self.at: dict[str, Address] = {}

    def transport(self, name: str, roster: Roster | None = None) -> Mouth:
        """Return a transport that shows a node's certificate."""
        shown = self.credential(name)
        mouth = Mouth(lambda: shown, roster or self.roster())
        mouth.liar = self.scene.liars.get(name)
        return mouth

    def credential(self, name: str) -> Credential:
        """Return a node's key, and a new certificate of it."""
        return self.certificates.credential(name)

    def roster(self) -> Roster:
        """Return whom a node believes."""
        return self.certificates.roster()

    def message(self, phase: str) -> Message:
        """Return a message as the attacker's node would write it, for it to change."""
        return replace(self.nodes["a"].kernel.context.message(0, phase), sender=HOSTILE)

    async def rounds(self, more: int) -> None:
        """Wait until all honest nodes ran so many more rounds."""
        honest = [self.nodes[name] for name in self.scene.honest]
        wanted = max(node.round for node in honest) + more
        await until(lambda: all(node.round >= wanted for node in honest))


async def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for something."""
    async with asyncio.timeout(limit_s):
        while not holds():
            await pause(0.02)


def descriptors() -> int:
    """Return how many descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def live(
    folder: Path, names: tuple[str, ...] = HONEST, scene: Scene = USUAL
) -> AsyncIterator[Mesh]:
    """Run some nodes until the block ends; their first rounds are through when the block begins."""
    mesh = Mesh(folder, scene)
    for name in names:
        roster = mesh.roster()
        node = Node(folder, name, mesh.transport(name, roster), roster, scene)
        mesh.nodes[name] = node
        mesh.at[name] = await node.transport.listen("127.0.0.1:0", node.driver.on_frame)
    for node in mesh.nodes.values():
        others = {name: mesh.at.get(name, NOWHERE) for name in scene.names if name != node.name}
        node.driver.addresses.update(others)
    running = []
    for node in mesh.nodes.values():
        running.append(asyncio.create_task(node.driver.run()))
        await pause(STAGGER_S)
    try:
        await mesh.rounds(2)
        yield mesh
    finally:
        for node in mesh.nodes.values():
            node.driver.stop()
        await asyncio.gather(*running)
