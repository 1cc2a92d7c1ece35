"""The daemon's host: effects performed in order, nothing slow in the way, an end that is clean."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.events import Send
from fednode.core.members.swim import TARGET
from fednode.core.types import Job, Message, Progress, Report
from fednode.learn.closed_form import ClosedFormLearner
from fednode.runtime.driver import Door
from fednode.runtime.sender import OUTBOX_MAX
from fednode.storage.store import Store
from fednode.wire import codec
from tests.contract.memory_transport import Hub, MemoryTransport
from tests.unit.runtime.daemons import address, running


class Slow(ClosedFormLearner):
    """Tunes until it is told to go on, or to stop; says so as a learner must."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        self.begun.set()
        while not self.go_on.wait(0.001):
            if cancelled():
                break
        return super().tune(job, cancelled, progress)


class Broken(ClosedFormLearner):
    """Has a defect, once."""

    failed = False

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        if not self.failed:
            self.failed = True
            raise ZeroDivisionError("a defect")
        return super().tune(job, cancelled, progress)


async def test_three_nodes_run_all_rounds_and_store_each(tmp_path: Path) -> None:
    hub = Hub()
    async with (
        running(hub, tmp_path, "a", ("b", "c")) as a,
        running(hub, tmp_path, "b", ("a", "c")) as b,
        running(hub, tmp_path, "c", ("a", "b")) as c,
    ):
        for node in (a, b, c):
            await node.until(lambda node=node: node.driver.kernel.view().life == "finished")  # type: ignore[misc]
        for node in (a, b, c):
            rows = node.store.history(0, 100)
            assert [row.round for row in rows] == [1, 2, 3, 4, 5]
            assert rows[-1].traffic["messages_out"] > 0


async def test_status_is_there_while_a_learner_tunes_and_stopping_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    learner = Slow("a")
    async with running(Hub(), tmp_path, "a", learner=learner) as node:
        await node.until(learner.begun.is_set)
        assert node.driver.kernel.view().phase == "tuning"
    assert node.round == 0
    assert node.task.done()
    Store(tmp_path / "a").close()  # the directory was let go of


async def test_progress_is_shown_while_tuning_and_gone_afterwards(tmp_path: Path) -> None:
    learner = Slow("a")
    async with running(Hub(), tmp_path, "a", most=1, learner=learner) as node:
        await node.until(learner.begun.is_set)
        learner.go_on.set()
        await node.until(lambda: node.driver.kernel.view().life == "finished")
        assert node.driver.progress is None


async def test_a_learner_s_defect_is_named_and_the_round_is_run_again(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=2, learner=Broken("a")) as node:
        await node.until(lambda: node.driver.kernel.view().life == "finished")
        texts = [one.record.text for one in node.driver.telemetry.events.troubles]
    assert texts == [
        "the learner failed: ZeroDivisionError: a defect; trying again in 1 s",
    ]


async def test_a_restart_goes_on_with_round_counts_and_traffic(tmp_path: Path) -> None:
    hub = Hub()
    async with running(hub, tmp_path, "b", ("a",), most=50, interval_s=0.01) as b:
        async with running(hub, tmp_path, "a", ("b",), most=50, interval_s=0.01) as a:
            await a.until(lambda: a.round >= 5)
        held = Store(tmp_path / "a")
        stored = held.latest()
        meters = held.meters()
        held.close()
        assert stored is not None
        assert set(meters) == {"", "b"}
        async with running(hub, tmp_path, "a", ("b",), most=50, interval_s=0.01) as again:
            assert again.driver.kernel.policy.state() == stored.policy
            assert again.driver.telemetry.meters() == meters
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
        assert b.driver.kernel.view().peers[0].reason == "it left the mesh"
        await asyncio.wait_for(asyncio.shield(a.task), 20)


async def test_frames_that_are_none_are_answered_with_a_sentence(tmp_path: Path) -> None:
    hub = Hub()
    async with running(hub, tmp_path, "a", most=1):
        for frame in (b"", b"\x00" * 40, b"GET / HTTP/1.1"):
            reply = await MemoryTransport(hub).send(address("a"), frame, 5.0)
            ack = codec.decode_ack(reply)
            assert ack.code == "invalid"
            assert ack.detail


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


async def test_a_closed_door_says_that_the_node_is_loading() -> None:
    door = Door()
    ack = codec.decode_ack(await door.on_frame(b"anything", ""))
    assert ack.code == "busy"
    assert "loading" in ack.detail

    async def echo(frame: bytes, caller: str = "") -> bytes:
        return frame

    door.open(echo)
    assert await door.on_frame(b"x", "") == b"x"


@pytest.mark.parametrize("times", [1, 3])
async def test_stop_may_be_called_again(tmp_path: Path, times: int) -> None:
    async with running(Hub(), tmp_path, "a", most=1) as node:
        await node.until(lambda: node.round == 1)
        for _ in range(times):
            node.driver.stop()
    assert node.task.done()
    assert node.task.exception() is None
