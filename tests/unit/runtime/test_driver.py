"""The daemon's host: effects performed in order, nothing slow in the way, an end that is clean."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.events import Commanded, Effect, Event, Record, Send, Spend, TurnAway
from fednode.core.members.swim import TARGET
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Message, Progress, Report
from fednode.errors import StateError
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.audience import told
from fednode.runtime.driver import Door, Driver
from fednode.runtime.sender import OUTBOX_MAX
from fednode.storage.store import Store
from fednode.wire import codec
from tests.contract.memory_transport import Hub, MemoryTransport
from tests.unit.identity.people import SmallMesh
from tests.unit.runtime.daemons import address, driver_of, running, zerodfl


class Slow(QuadraticLearner):
    """Tunes until it is told to go on, or to stop. deaf: it does not see that it is to stop."""

    def __init__(self, name: str, deaf: bool = False) -> None:
        super().__init__(name)
        self.deaf = deaf
        self.begun, self.go_on = threading.Event(), threading.Event()

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        self.begun.set()
        while not self.go_on.wait(0.001):
            if cancelled() and not self.deaf:
                break
        return super().tune(job, cancelled, progress)


class Broken(QuadraticLearner):
    """Has a defect, once."""

    failed = False

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        if not self.failed:
            self.failed = True
            raise ZeroDivisionError("a defect")
        return super().tune(job, cancelled, progress)


async def test_status_is_there_while_a_learner_tunes_and_stopping_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    learner = Slow("a")
    async with running(Hub(), tmp_path, "a", learner=learner) as node:
        await node.until(learner.begun.is_set)
        assert node.driver.kernel.view().activity == "tuning"
    assert node.round == 0
    assert node.task.done()
    Store(tmp_path / "a").close()  # the directory was let go of


async def test_a_stop_answers_callers_before_the_step_of_tuning_ends(tmp_path: Path) -> None:
    learner, hub = Slow("a", deaf=True), Hub()
    async with (
        running(hub, tmp_path, "b", ("a",), most=0) as b,
        running(hub, tmp_path, "a", ("b",), learner=learner) as a,
    ):
        await a.until(learner.begun.is_set)
        hub.hold(address("b"))
        errand = replace(b.driver.kernel.context.message(0, "indirect"), facts={TARGET: "b"})
        caller = asyncio.create_task(a.driver.on_frame(codec.encode(errand, "float32"), ""))
        await a.until(lambda: bool(a.driver._answers))
        a.driver.stop()
        assert codec.decode_ack(await caller).code == "busy"
        learner.go_on.set()


async def test_a_learner_s_defect_is_named_and_the_round_is_run_again(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=2, learner=Broken("a")) as node:
        await node.until(lambda: node.driver.kernel.view().life == "finished")
        texts = [one.record.text for one in node.driver.telemetry.events.troubles]
    assert texts == [
        "the learner failed: ZeroDivisionError: a defect; trying again in 1 s",
    ]


async def test_a_restart_goes_on_with_the_rounds_and_counts_traffic_anew(tmp_path: Path) -> None:
    hub = Hub()
    async with running(hub, tmp_path, "b", ("a",), most=50, interval_s=0.01) as b:
        async with running(hub, tmp_path, "a", ("b",), most=50, interval_s=0.01) as a:
            await a.until(lambda: a.round >= 5)
        held = Store(tmp_path / "a")
        stored = held.latest()
        held.close()
        assert stored is not None
        async with running(hub, tmp_path, "a", ("b",), most=50, interval_s=0.01) as again:
            assert again.driver.kernel.policy.state() == stored.policy
            rows = again.store.history(0, 100)
            assert again.driver.telemetry.total.sent.messages < rows[-1].traffic["messages_out"]
            await again.until(lambda: again.round > stored.policy.round)
        await b.until(lambda: b.round > 0)


async def test_one_peer_that_never_answers_holds_up_nobody(tmp_path: Path) -> None:
    hub = Hub()
    async with (
        running(hub, tmp_path, "a", ("b", "c"), most=30) as a,
        running(hub, tmp_path, "b", ("a",), most=30) as b,
        running(hub, tmp_path, "c", ("a",), most=0),
    ):
        await a.until(lambda: a.round >= 1)
        hub.hold(address("c"))
        await a.until(lambda: a.driver.kernel.view().life == "finished")
        await b.until(lambda: b.driver.kernel.view().life == "finished")
        assert (a.round, b.round) == (30, 30)
        hub.release(address("c"))


async def test_an_errand_that_lasts_holds_up_nothing_else(tmp_path: Path) -> None:
    """A helper answers an errand only when a third peer answered, or did not."""
    hub, held, errands = Hub(), asyncio.Event(), 0

    async def slow(frame: bytes, caller: str) -> bytes:
        nonlocal errands
        message = codec.decode(frame)
        if message.phase == "indirect":
            errands += 1
            await held.wait()
        said.add(message.phase)
        return codec.encode_ack("ok", "")

    said: set[str] = set()
    helper = MemoryTransport(hub)
    await helper.listen(address("b"), slow)
    async with running(hub, tmp_path, "a", ("b",), most=0) as a:
        await a.until(lambda: "hello" in said)
        message = a.driver.kernel.context.message(1, "indirect", facts={TARGET: "c"})
        for _ in range(2 * OUTBOX_MAX):
            a.driver._sender.send(Send("b", message))
        a.driver._sender.send(Send("b", replace(message, phase="bye")))
        await a.until(lambda: "bye" in said)
        await a.until(lambda: errands == OUTBOX_MAX)
        held.set()
    assert errands == OUTBOX_MAX


async def test_a_dead_peer_is_dead_though_its_address_is_none(tmp_path: Path) -> None:
    """A peer gives its own address; sends to one that does not parse fail on this node."""
    hub = Hub()
    async with running(hub, tmp_path, "a", ("b",), most=0) as a:

        def state() -> str:
            return a.driver.kernel.view().peers[0].state

        async with running(hub, tmp_path, "b", ("a",), most=0):
            await a.until(lambda: state() == "alive")
            a.driver.addresses["b"] = "[/ghost]"
        await a.until(lambda: state() == "dead")
        assert "/ghost" in a.driver.addresses["b"]


async def test_leave_says_goodbye_and_ends_the_node(tmp_path: Path) -> None:
    hub = Hub()
    async with (
        running(hub, tmp_path, "b", ("a",), most=0) as b,
        running(hub, tmp_path, "a", ("b",), most=0) as a,
    ):
        await a.until(lambda: a.round >= 1)
        a.driver.command("leave")
        await b.until(lambda: b.driver.kernel.view().peers[0].state == "left")
        assert b.driver.kernel.view().peers[0].reason == ""
        await asyncio.wait_for(asyncio.shield(a.task), 20)


async def test_nothing_is_sent_after_the_goodbye(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that comes later would bring the node back in its peers' eyes."""
    hub = Hub()
    async with (
        running(hub, tmp_path, "b", ("a",), most=0),
        running(hub, tmp_path, "a", ("b",), most=0) as a,
    ):
        await a.until(lambda: a.round >= 1)
        kernel, sent = a.driver.kernel, list[str]()
        step, send = kernel.step, a.driver._sender.send

        def pinging(now: float, event: Event) -> list[Effect]:
            ping = Send("b", kernel.context.message(kernel.policy.state().round, "ping"))
            return [*step(now, event), *([ping] if event == Commanded("pause") else [])]

        def noted(effect: Send) -> None:
            sent.append(effect.message.phase)
            send(effect)

        monkeypatch.setattr(kernel, "step", pinging)
        monkeypatch.setattr(a.driver._sender, "send", noted)
        a.driver.command("leave")
        a.driver.command("pause")
        await asyncio.wait_for(asyncio.shield(a.task), 20)
        assert sent[-1] == "bye"


async def test_messages_of_strangers_are_answered_and_not_counted_as_traffic(
    tmp_path: Path,
) -> None:
    hub = Hub()
    async with running(hub, tmp_path, "a", ("b",), most=0) as node:
        stranger = Message(
            mesh="simulated",
            fingerprint="ff",
            policy="zerodfl",
            sender="zoe",
            round=1,
            phase="hello",
        )
        frame = codec.encode(stranger, "float32")
        ack = codec.decode_ack(await MemoryTransport(hub).send(address("a"), frame, 5.0))
        assert (ack.code, "not among the peers" in ack.detail) == ("refused", True)
        assert node.driver.telemetry.total.received.messages == 0
        assert node.driver.kernel.view().refused == {"sender": 1}


async def test_stop_may_be_called_again(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=1) as node:
        await node.until(lambda: node.round == 1)
        for _ in range(3):
            node.driver.stop()
    assert node.task.done()
    assert node.task.exception() is None


class Noting(MemoryTransport):
    """A transport that notes what it is told, and has a defect. room: of messages."""

    def __init__(self) -> None:
        super().__init__(Hub())
        self.away: list[tuple[str, float]] = []
        self.room = 0

    def disconnect(self, id: str, seconds: float) -> None:
        self.away.append((id, seconds))

    def expect(self, frame_bytes: int) -> None:
        self.room = frame_bytes

    async def send(self, to: str, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        raise ValueError("a defect of the transport")


async def test_a_revoked_and_a_quarantined_key_lose_their_connections(tmp_path: Path) -> None:
    transport = Noting()
    async with running(Hub(), tmp_path, "a", ("b",)) as a:
        mesh = SmallMesh()
        a.driver.transport, a.driver.members = transport, mesh.roster("b")
        await a.driver._perform(TurnAway("b", 60.0))
        assert transport.away == [(mesh.id("b"), 60.0)]
        a.driver.revoke(mesh.revocation("b"))
        assert transport.away[1:] == [(mesh.id("b"), math.inf)]


async def test_releases_elsewhere_are_counted_and_a_full_disk_is_said(tmp_path: Path) -> None:
    counted: list[tuple[int, str]] = []

    def count(releases: int, undecided: str) -> None:
        if not releases:
            raise StateError("The account cannot be written: no space left.")
        counted.append((releases, undecided))

    async with running(Hub(), tmp_path, "a") as node:
        driver: Driver = node.driver
        await driver._perform(Spend(3))  # a host without an account counts nothing
        driver._worker.learning = replace(driver._worker.learning, spend=count)
        await driver._perform(Spend(3, "why"))
        await driver._perform(Spend(0))
        assert counted == [(3, "why")]
        last = [*driver.telemetry.events.kept][-1].record
        assert (last.kind, last.level) == ("privacy.unwritten", "error")


async def test_a_task_that_dies_ends_the_node_with_its_reason(tmp_path: Path) -> None:
    plan = zerodfl(RoundSettings("async", max=5))
    driver = driver_of(plan, tmp_path, "a", "ab", QuadraticLearner("a"), Noting())
    driver.addresses["b"] = address("b")
    with pytest.raises(ValueError, match="a defect of the transport"):
        await asyncio.wait_for(driver.run(), 20)


async def test_the_transport_learns_how_large_messages_become(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=1) as node:
        driver, transport = node.driver, Noting()
        driver.transport = transport
        await node.until(lambda: node.round == 1 and transport.room > 0)
        arrays = driver.kernel.policy.state().tensors
        assert transport.room == sum(4 * one.size for one in arrays.values())
        driver.kernel.policy.state_bytes = 60 << 20  # type: ignore[attr-defined]
        driver._expect()
        assert transport.room == 60 << 20, "what a late node takes over"


async def test_a_defect_that_a_node_survived_is_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with running(Hub(), tmp_path, "a", ("b",), most=0) as a:
        await a.driver._perform(Record("message.refused", "refused", cause=KeyError("lost")))
        records = [one.record for one in a.driver.telemetry.events.kept]
    assert any(f"the details are in {tmp_path}/fednode-crash-" in one.text for one in records)
    assert not any("lost" in one.text for one in records if told(one)), "members read none of it"


async def test_a_door_is_closed_until_its_node_has_loaded(tmp_path: Path) -> None:
    door = Door()
    ack = codec.decode_ack(await door.on_frame(b"anything", ""))
    assert ack == codec.Ack("busy", "this node is loading its model and images")
    async with running(Hub(), tmp_path, "a", most=1) as node:
        door.open(node.driver.on_frame)
        assert codec.decode_ack(await door.on_frame(b"anything", "")).code == "invalid"
