"""Several nodes are asked at once; who does not answer stands in the list without a status."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fednode.app.asking import ask_all
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
        async with asyncio.timeout(20):
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


async def test_nobody_to_ask_is_no_answer() -> None:
    assert await ask_all(cast("Client", Asked()), []) == []
