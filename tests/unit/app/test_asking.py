"""Several nodes are asked at once; who does not answer stands in the list without a status."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fednode.app.asking import ask_all, everyone
from fednode.errors import Refused, Unreachable
from fednode.observe.client import Client
from fednode.wire.gen import status_pb2

TARGETS = [("a", "a:1"), ("b", "b:1"), ("c", "c:1")]


class Asked:
    """A client whose nodes answer once all of them were asked."""

    def __init__(self) -> None:
        self.waiting = 0
        self.all = asyncio.Event()

    async def status(self, where: str) -> Any:
        self.waiting += 1
        if self.waiting == len(TARGETS):
            self.all.set()
        async with asyncio.timeout(180):
            await self.all.wait()
        if where == "b:1":
            raise Unreachable("nobody")
        if where == "c:1":
            raise Refused("no")
        return status_pb2.StatusReply(name=where)


async def test_all_are_asked_at_once_and_answers_stand_beside_their_nodes() -> None:
    found = await ask_all(cast("Client", Asked()), TARGETS)
    assert [target for target, _ in found] == TARGETS
    assert [reply and reply.name for _, reply in found] == ["a:1", None, None]


async def test_members_that_joined_later_are_asked_too() -> None:
    asked = list[str]()

    class Grown:
        async def status(self, where: str) -> Any:
            asked.append(where)
            if where == "d:1":
                raise Unreachable("nobody")
            states = {"a": "alive", "c": "alive", "d": "dead", "e": "revoked", "f": "alive"}
            peers = [
                status_pb2.Peer(name=name, state=state, address=f"{name}:1" if name != "f" else "")
                for name, state in states.items()
            ]
            return status_pb2.StatusReply(name=where[0], peers=peers)

    found = await ask_all(cast("Client", Grown()), TARGETS[:2])
    assert asked == ["a:1", "b:1", "c:1", "d:1"]
    assert [name for (name, _), _ in found] == ["a", "b", "c", "d"]
    assert [reply is None for _, reply in found] == [False, False, False, True]


async def test_nobody_to_ask_is_no_answer() -> None:
    assert await ask_all(cast("Client", Asked()), []) == []


async def test_members_behind_relays_are_asked_by_their_names() -> None:
    class Relayed:
        async def status(self, where: str) -> Any:
            if where == "b:1":
                raise Unreachable("nobody")
            named = [("d", "relay"), ("f", "f:1")]
            peers = [status_pb2.Peer(name=name, address=at, state="alive") for name, at in named]
            return status_pb2.StatusReply(name=where[0], peers=peers)

    found = await everyone(cast("Client", Relayed()), TARGETS[:2])
    assert found == [*TARGETS[:2], ("d", "relay:d"), ("f", "f:1")]
