"""A node's settings documents without a kernel: what the kernel would be told is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from fednode.app.network import NodeNetwork, join
from fednode.app.plan import NodePlan, learner_of
from fednode.app.settling import Settling
from fednode.core.documents import Documents
from fednode.core.events import Decided, Event, Offered
from fednode.core.members.table import Member
from fednode.learn.learner import Learner
from fednode.observe.telemetry import Telemetry
from fednode.storage.store import Store


@dataclass
class FakeKernel:
    documents: Documents


@dataclass
class FakeView:
    peers: tuple[Member, ...] = ()


@dataclass
class FakeDriver:
    """Takes the events of a Settling; offers come back at once, as from a kernel."""

    settling: Settling
    kernel: FakeKernel
    posted: list[Event] = field(default_factory=list)
    telemetry: Telemetry = field(default_factory=Telemetry)
    seen: FakeView = field(default_factory=FakeView)

    def view(self) -> FakeView:
        return self.seen

    def post(self, event: Event) -> None:
        self.posted.append(event)
        if isinstance(event, Offered):
            self.kernel.documents.offered(event.document)
            self.settling.offered(event.document)
        elif isinstance(event, Decided):
            self.kernel.documents.decided(event.digest, event.accepts)

    @property
    def decided(self) -> list[tuple[str, bool]]:
        return [(one.digest, one.accepts) for one in self.posted if isinstance(one, Decided)]

    @property
    def texts(self) -> list[str]:
        return [one.record.text for one in self.telemetry.events.kept]


@dataclass
class Scene:
    """A node's parts: its driver is a fake."""

    plan: NodePlan
    network: NodeNetwork
    store: Store
    learner: Learner
    settling: Settling
    driver: FakeDriver


@contextmanager
def scene(plan: NodePlan, **given: Any) -> Iterator[Scene]:
    """Make the parts of a node that has a state directory."""
    network, store = join(plan), Store(plan.state)
    learner = learner_of(plan.settings, plan.name)
    settling = Settling(network, store, learner, "process", **given)
    driver = FakeDriver(settling, FakeKernel(settling.folder.documents))
    try:
        yield Scene(plan, network, store, learner, settling, driver)
    finally:
        store.close()


async def attached(made: Scene) -> None:
    """Let the node follow documents; return once what it accepted before is prepared."""
    made.settling.attach(cast("Any", made.driver))
    await prepared(made)


async def prepared(made: Scene) -> None:
    """Wait until nothing is being prepared."""
    while tasks := list(made.settling._preparing.values()):
        await asyncio.wait(tasks)
        await asyncio.sleep(0)
