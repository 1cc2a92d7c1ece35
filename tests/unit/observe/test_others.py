"""Other nodes of the mesh are asked at once and a few; who is silent is left out, with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from fednode.errors import AddressError
from fednode.observe.others import AGAIN_S, ASKED_MAX, FRESH_S, Classes, ask
from fednode.wire.gen import status_pb2, status_pb2_grpc

CLOSED = "127.0.0.1:1"


class Node(status_pb2_grpc.NodeServicer):
    async def Status(self, request: Any, context: Any) -> status_pb2.StatusReply:
        return status_pb2.StatusReply(name="b\x1b[2J", round=4)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = grpc.aio.server()
    status_pb2_grpc.add_NodeServicer_to_server(Node(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def dial(address: str, name: str, reply_bytes: int) -> grpc.aio.Channel:
    if name == "lost":
        raise AddressError("no such name")
    return grpc.aio.insecure_channel(address)


async def test_answers_are_made_safe_and_silent_nodes_left_out(address: str) -> None:
    places = {"b": address, "c": CLOSED, "lost": address}
    async with asyncio.timeout(180):
        found = await ask(dial, places, ["b", "c", "lost"])
    assert list(found) == ["b"]
    assert found["b"].round == 4
    assert found["b"].name.isprintable()


async def test_few_nodes_are_asked() -> None:
    dialled: list[str] = []

    async def counted(address: str, name: str, reply_bytes: int) -> grpc.aio.Channel:
        dialled.append(name)
        raise AddressError("nobody")

    names = [f"p{number:03}" for number in range(ASKED_MAX + 9)]
    assert await ask(counted, dict.fromkeys(names, CLOSED), names) == {}
    assert dialled == names[:ASKED_MAX]


def test_a_peer_is_asked_for_its_classes_until_it_tells_them_and_then_now_and_again() -> None:
    found, silent = Classes(), status_pb2.StatusReply(name="b")
    told = status_pb2.StatusReply(name="b", classes=["cyst"])
    assert found.due(["b"], 0.0) == ["b"]
    found.heard(["b"], {"b": silent}, 0.0)
    assert (found.due(["b"], AGAIN_S - 1), found.due(["b"], AGAIN_S)) == ([], ["b"])
    found.heard(["b"], {"b": told}, AGAIN_S)
    later = AGAIN_S + FRESH_S
    assert (found.due(["b"], later - 1), found.due(["b"], later)) == ([], ["b"])
    found.heard(["b"], {}, later)  # it does not answer, and what it told is kept
    assert found.said(["mole"])[0] == "Only this node has its classes: mole."
    assert len(found.due([f"p{at}" for at in range(99)], 0.0)) == ASKED_MAX


def test_a_peer_that_keeps_its_class_names_is_named_and_one_that_loads_is_not() -> None:
    found = Classes()
    replies = {
        "b": status_pb2.StatusReply(name="b", life="running"),
        "c": status_pb2.StatusReply(name="c", life="loading"),
    }
    found.heard(["b", "c"], replies, 0.0)
    (said,) = found.said(["mole"])
    assert said == "not compared, because they tell no class names (data.tell_classes): b"
    told = status_pb2.StatusReply(name="b", life="running", classes=["mole"])
    found.heard(["b"], {"b": told}, FRESH_S)
    assert found.said(["mole"]) == []
