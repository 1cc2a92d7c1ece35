"""What a driver asks of what follows settings documents, and what it does with the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fednode.core.events import Offer, Switch
from fednode.core.types import Document
from fednode.errors import StateError
from fednode.learn.closed_form import ClosedFormLearner
from fednode.runtime.settling import Settling
from fednode.runtime.worker import Learning
from tests.contract.memory_transport import Hub
from tests.unit.runtime.daemons import running

GOOD, BAD = Document(1, "1" * 32, 0, b"good"), Document(2, "2" * 32, 0, b"bad")


@dataclass
class Follower:
    """Runs under GOOD, and cannot run under BAD."""

    learning: Learning
    seen: list[object] = field(default_factory=list)

    def checked(self, proof: bytes) -> Document | None:
        return GOOD if proof == GOOD.proof else None

    def offered(self, document: Document) -> None:
        self.seen.append(document)

    def switch(self, document: Document) -> Learning:
        if document == BAD:
            raise StateError("The settings cannot be written.")
        return self.learning

    def begun(self, document: Document) -> None:
        self.seen.append("begun")

    def committed(self) -> None:
        self.seen.append("committed")


async def test_a_driver_works_under_a_document_or_says_why_not(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=1) as node:
        await node.until(lambda: node.driver.kernel.view().life == "finished")
        driver = node.driver
        learning = Learning(learner=ClosedFormLearner("a"), dtype="float16")
        follower: Settling = Follower(learning)
        await driver._perform(Offer(GOOD))  # a host that follows none
        driver._settling = follower
        await driver._perform(Offer(GOOD))
        assert isinstance(follower, Follower)
        assert follower.seen == [GOOD]
        await driver._perform(Switch(BAD))
        assert driver._worker.learning is not learning
        await node.until(lambda: "2" * 32 in driver.kernel.documents.refused)
        texts = [one.record.text for one in driver.telemetry.events.troubles]
        assert "this node cannot run under settings 0: The settings cannot be written." in texts
        driver._post = lambda event: None  # type: ignore[method-assign]
        await driver._perform(Switch(GOOD))
        assert driver._worker.learning is learning
        assert driver._sender.dtype == "float16"
        assert follower.seen == [GOOD, "begun"]
        del driver._post
