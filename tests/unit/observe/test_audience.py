"""What members see of a node: a planted secret in each place that only the operator may read."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.events import Level, Record
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.audience import told
from fednode.observe.status import NodeService
from fednode.observe.telemetry import Telemetry
from fednode.storage.store import Store
from tests.unit.observe.nodes import FakeNode
from tests.unit.observe.test_status import serving
from tests.unit.runtime.daemons import ABOUT

SECRET = "Jane-Doe-1947"


class Talking(QuadraticLearner):
    """A learner whose notes and one of whose classes name a patient."""

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"Skipped 1 file, such as '/photos/{SECRET}.png'",)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (f"2 images of {SECRET} are in both sets",)

    @property
    def classes(self) -> tuple[str, ...]:
        return ("cat", SECRET)

    @property
    def announced(self) -> tuple[tuple[str, ...], int]:
        """The other class has too few images (privacy.least_images)."""
        return ("cat",), 5


@pytest.mark.parametrize("caller", ["member", "ID"])
@pytest.mark.parametrize("tells", [True, False])
async def test_notes_and_faults_are_for_the_operator_and_members_get_their_number(
    tmp_path: Path, caller: str, tells: bool
) -> None:
    store = Store(tmp_path)
    about = replace(ABOUT, caution=f"the key of {SECRET} is old", tells_classes=tells)
    service = NodeService(store, about, caller=lambda _: caller)
    service.attach(FakeNode(telemetry=Telemetry(events=service.events)), Talking("a"))
    service.events.record(Record("tune.failed", f"/photos/{SECRET}.png is damaged", "warning"))
    service.events.record(Record("peer.dead", "b is dead", "warning", {"peer": "b"}))
    async with serving(service) as (client, where):
        reply = await client.status(where)
        async with aclosing(client.watch(where, follow=False)) as events:
            kinds = [event.kind async for event in events]
    mine = caller == "ID"
    assert kinds == (["tune.failed", "peer.dead"] if mine else ["peer.dead"])
    said = "\n".join([*reply.notes, *reply.warnings, *(event.text for event in reply.events)])
    assert (SECRET in said) == mine
    assert list(reply.warnings) == ([f"2 images of {SECRET} are in both sets"] if mine else [])
    hidden = "its operator sees 4 more notes or events about its own machine"
    assert (hidden in reply.notes) == (not mine)
    assert list(reply.classes) == (["cat", SECRET] if mine else ["cat"] if tells else [])
    assert reply.samples == (Talking("a").samples if mine else 5)
    store.close()


TOLD: tuple[tuple[str, Level], ...] = (
    *(("peer.up", "info"), ("round.adopted", "info"), ("message.refused", "warning")),
    ("state.agrees", "info"),
)
UNTOLD: tuple[tuple[str, Level], ...] = (
    *(("message.sent", "debug"), ("round.merged", "debug"), ("tune.failed", "warning")),
    *(("adopt.failed", "error"), ("state.damaged", "warning"), ("state.failed", "error")),
    *(("data.images", "info"), ("data.classes", "info"), ("a.kind.to.come", "info")),
)


def test_a_kind_of_record_is_told_only_if_it_is_listed() -> None:
    records = [Record(kind, "text", level) for kind, level in (*TOLD, *UNTOLD)]
    assert [(one.kind, one.level) for one in records if told(one)] == [*TOLD]
