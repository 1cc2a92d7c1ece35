"""The client of the status service: what daemons answer, and one sentence for every silence.

Method: a real gRPC server on loopback with canned replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from fednode.errors import AddressError, FednodeError, Refused, Unreachable
from fednode.observe.client import ASKED_MAX, HISTORY_PAGE, Client, ask
from fednode.wire.gen import status_pb2, status_pb2_grpc

CLOSED = "127.0.0.1:1"


class Canned(status_pb2_grpc.NodeServicer):
    """A node with many rounds that may be told to hang."""

    def __init__(self, rounds: int = 0, hang: bool = False, name: str = "a") -> None:
        self.rounds, self.name = rounds, name
        self.hang = hang
        self.asked: list[int] = []

    async def Status(
        self, request: status_pb2.StatusRequest, context: Any
    ) -> status_pb2.StatusReply:
        if self.hang:
            await asyncio.Event().wait()
        return status_pb2.StatusReply(name=self.name, life="running", metrics={"loss": 0.5})

    async def History(
        self, request: status_pb2.HistoryRequest, context: Any
    ) -> status_pb2.HistoryReply:
        self.asked.append(request.since)
        first = max(1, request.since)
        last = min(self.rounds, first + min(request.limit, HISTORY_PAGE) - 1)
        rounds = [status_pb2.Round(round=number) for number in range(first, last + 1)]
        return status_pb2.HistoryReply(rounds=rounds)

    async def Control(
        self, request: status_pb2.ControlRequest, context: Any
    ) -> status_pb2.ControlReply:
        if request.command != "pause":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "No such command.")
        return status_pb2.ControlReply(text="Paused.")


@asynccontextmanager
async def serving(servicer: Canned | None, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = grpc.aio.server()
    if servicer is not None:
        status_pb2_grpc.add_NodeServicer_to_server(servicer, server)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_status_and_control_bring_the_answer() -> None:
    async with serving(Canned()) as address, Client() as client:
        assert (await client.status(address)).metrics["loss"] == 0.5
        assert await client.control(address, "pause") == "Paused."
        with pytest.raises(Refused, match=f"{address} refused: No such command"):
            await client.control(address, "jump")
        await client.close()
        await client.close()
        assert await client.control(address, "pause") == "Paused.", "closing twice is harmless"


@pytest.mark.parametrize(
    ("servicer", "fault", "said"),
    [
        (None, Refused, "is no fednode daemon"),
        (Canned(hang=True), Unreachable, r"did not answer within 0\.05 s"),
    ],
)
async def test_what_does_not_answer_is_a_sentence(
    servicer: Canned | None, fault: type[FednodeError], said: str
) -> None:
    async with serving(servicer) as address, Client(timeout_s=0.05) as client:
        with pytest.raises(fault, match=said):
            await client.status(address)


@pytest.mark.parametrize("count", [0, 3, HISTORY_PAGE, 2 * HISTORY_PAGE + 5])
async def test_history_is_read_to_its_end(count: int) -> None:
    canned = Canned(rounds=count)
    async with serving(canned) as address, Client() as client:
        rounds = await client.history(address)
    assert [one.round for one in rounds] == list(range(1, count + 1))
    assert len(canned.asked) == count // HISTORY_PAGE + 1


async def dial(address: str, name: str, reply_bytes: int) -> grpc.aio.Channel:
    if name == "lost":
        raise AddressError("no such name")
    return grpc.aio.insecure_channel(address)


async def test_answers_are_made_safe_and_silent_nodes_left_out() -> None:
    async with serving(Canned(name="b\x1b[2J")) as address, asyncio.timeout(180):
        places = {"b": address, "c": CLOSED, "lost": address}
        found = await ask(dial, places, ["b", "c", "lost"])
    assert list(found) == ["b"]
    assert found["b"].life == "running"
    assert found["b"].name.isprintable()


async def test_few_nodes_are_asked() -> None:
    dialled: list[str] = []

    async def counted(address: str, name: str, reply_bytes: int) -> grpc.aio.Channel:
        dialled.append(name)
        raise AddressError("nobody")

    names = [f"p{number:03}" for number in range(ASKED_MAX + 9)]
    assert await ask(counted, dict.fromkeys(names, CLOSED), names) == {}
    assert dialled == names[:ASKED_MAX]
