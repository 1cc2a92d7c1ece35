"""Outboxes: a broadcast is encoded once, whoever is slow, and each send ends in one event."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from fednode.core.events import Delivered, Event, Send, Undelivered
from fednode.core.types import Dtype, Message, Tensors
from fednode.observe.telemetry import Telemetry
from fednode.runtime.sender import LONG_BYTES, OUTBOX_MAX, Sender
from fednode.wire import codec
from tests.contract.memory_transport import Hub, MemoryTransport

PEERS, PLACE = "bcdef", "127.0.0.1:1"


class Host:
    """The driver's side of a sender, and the receiver of its messages."""

    def __init__(self) -> None:
        hub = Hub()
        self.receiver = MemoryTransport(hub)
        self.frames, self.ended = list[bytes](), list[Event]()
        self.tasks: list[asyncio.Task[None]] = []
        self.sender = Sender(
            MemoryTransport(hub),
            dict.fromkeys(PEERS, PLACE),
            Telemetry(),
            dtype="float32",
            post=self.ended.append,
            spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)),
        )
        for peer in PEERS:
            self.sender.open(peer)

    async def take(self, frame: bytes, caller: str) -> bytes:
        self.frames.append(frame)
        return codec.encode_ack("ok", "")

    async def end(self) -> None:
        """Let all messages go, which wait in their outboxes until now."""
        await self.receiver.listen(PLACE, self.take)
        await self.sender.emptied()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def message(numbers: int, phase: str = "prompts") -> Message:
    tensors = Tensors({"context": np.arange(float(numbers)).reshape(1, -1)})
    return Message(
        mesh="m",
        fingerprint="ff",
        policy="promptfl",
        sender="a",
        round=1,
        phase=phase,
        tensors=tensors,
    )


@pytest.mark.parametrize("numbers", [4, LONG_BYTES // 4], ids=["short", "long"])
async def test_a_broadcast_is_encoded_once(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    encoded: list[Message] = []
    original = codec.encode

    def encode(said: Message, dtype: Dtype) -> bytes:
        encoded.append(said)
        return original(said, dtype)

    monkeypatch.setattr(codec, "encode", encode)
    host, said = Host(), message(numbers)
    for peer in PEERS:
        host.sender.send(Send(peer, said))
    host.sender.send(Send("b", message(1, "done")))
    await host.end()
    assert [one.phase for one in encoded] == ["prompts", "done"]
    assert len(host.frames) == len(PEERS) + 1
    assert codec.decode(host.frames[0]).tensors == said.tensors
    assert sorted(one.to for one in host.ended if isinstance(one, Delivered)) == ["b", *PEERS]


async def test_a_message_that_cannot_be_sent_ends_for_each_peer() -> None:
    host, said = Host(), message(LONG_BYTES // 4, "a phase")
    for peer in PEERS:
        host.sender.send(Send(peer, said))
    await host.end()
    codes = [(one.code, one.sent) for one in host.ended if isinstance(one, Undelivered)]
    assert codes == [("invalid", False)] * len(PEERS)
    assert host.frames == []


async def test_an_outbox_that_is_full_says_so_and_others_go_on() -> None:
    host = Host()
    for at in range(OUTBOX_MAX + 1):
        host.sender.send(Send("b", message(1 + at)))
    (event,) = host.ended
    assert isinstance(event, Undelivered)
    assert (event.to, event.code) == ("b", "busy")
    assert f"holds {OUTBOX_MAX} messages" in event.reason
    host.sender.send(Send("stranger", message(1)))
    assert isinstance(host.ended[-1], Undelivered)
    assert host.ended[-1].reason == "this node knows no address of stranger"
    host.sender.send(Send("c", message(1)))
    await host.end()
    assert len(host.frames) == OUTBOX_MAX + 1
