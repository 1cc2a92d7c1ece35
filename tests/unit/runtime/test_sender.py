"""Outboxes: a broadcast is encoded once, whoever is slow, and each send ends in one event."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import numpy as np
import pytest

from fednode.core.events import Delivered, Event, Send, Undelivered
from fednode.core.types import Dtype, Message, Tensors
from fednode.observe.telemetry import Telemetry
from fednode.runtime.sender import LONG_BYTES, OUTBOX_MAX, Sender
from fednode.transports.base import Address
from fednode.wire import codec

PEERS = "bcdef"


class Wire:
    """A transport that acknowledges each frame once `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.frames: list[bytes] = []

    async def listen(self, address: Address, on_frame: object) -> Address:
        raise AssertionError("a sender does not listen")

    async def send(self, address: Address, frame: bytes, timeout_s: float, peer: str = "") -> bytes:
        await self.open.wait()
        self.frames.append(frame)
        return codec.encode_ack("ok", "")

    def expect(self, frame_bytes: int) -> None:
        raise AssertionError("a sender expects nothing")

    def disconnect(self, id: str, seconds: float) -> None:
        raise AssertionError("a sender turns nobody away")

    async def close(self) -> None:
        """There is nothing to close."""


class Host:
    """The driver's side of a sender."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.ended: list[Event] = []
        self.tasks: list[asyncio.Task[None]] = []
        places: dict[str, Address] = dict.fromkeys(PEERS, "127.0.0.1:1")
        self.sender = Sender(
            self.wire, places, Telemetry(), dtype="float32", post=self.ended.append, spawn=self.run
        )
        for peer in PEERS:
            self.sender.open(peer)

    def run(self, work: Coroutine[None, None, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def end(self) -> None:
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
    host.wire.open.set()
    await host.sender.emptied()
    await host.end()
    assert [one.phase for one in encoded] == ["prompts", "done"]
    assert len(host.wire.frames) == len(PEERS) + 1
    assert codec.decode(host.wire.frames[0]).tensors == said.tensors
    assert sorted(one.to for one in host.ended if isinstance(one, Delivered)) == ["b", *PEERS]


async def test_a_message_that_cannot_be_sent_ends_for_each_peer() -> None:
    host, said = Host(), message(LONG_BYTES // 4, "a phase")
    for peer in PEERS:
        host.sender.send(Send(peer, said))
    host.wire.open.set()
    await host.sender.emptied()
    await host.end()
    codes = [(one.code, one.sent) for one in host.ended if isinstance(one, Undelivered)]
    assert codes == [("invalid", False)] * len(PEERS)
    assert host.wire.frames == []


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
    host.wire.open.set()
    host.sender.send(Send("c", message(1)))
    await host.sender.emptied()
    await host.end()
    assert len(host.wire.frames) == OUTBOX_MAX + 1
