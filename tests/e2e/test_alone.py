"""Two real daemons: what a user is told of a run without the peer, and of a run with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fednode.observe.client import Client
from tests.e2e.test_two_daemons import Pair, pair

__all__ = ["pair"]
pytestmark = pytest.mark.e2e
RUN = ("--set", "policy.name=promptfl", "--set", "rounds.max=3")
NEVER_MERGED = 1


def finished(reply: Any) -> bool:
    return bool(reply.life == "finished")


async def test_a_run_without_its_peer_is_never_shown_as_a_federation(pair: Pair) -> None:
    where = pair.address["a"]
    async with Client() as client, pair.running("a", "--alone", *RUN):
        reply = await pair.until(client, "a", finished)
        assert (reply.rounds_merged, reply.rounds_run) == (0, 3)
        for words in (("--peers", str(pair.peers)), (where,)):
            code = await asyncio.to_thread(pair.fednode, "status", *words)
            assert code == NEVER_MERGED, pair.fednode.err
    assert "0 of 3 rounds merged" in " ".join(pair.fednode.out.split())


async def test_a_node_that_ran_alone_begins_again_with_its_peer_after_a_reset(pair: Pair) -> None:
    async with Client() as client:
        async with pair.running("a", "--alone", *RUN):
            await pair.until(client, "a", finished)
            async with pair.running("b", *RUN):
                why = "a (it ran all its rounds alone: fednode reset and fednode start there)"
                waits = await pair.until(
                    client, "b", lambda reply: any(why in one for one in reply.notes)
                )
                assert waits.life == "waiting"
                met = "b can be reached now: fednode reset and fednode start at a begin the rounds"
                reply = await pair.until(
                    client, "a", lambda reply: any(met in one for one in reply.warnings)
                )
                assert (reply.rounds_merged, reply.rounds_run) == (0, 3)
        await pair.types("reset", "--yes", "--state", str(pair.folder / "a"))
        async with pair.running("a", *RUN), pair.running("b", *RUN):
            for name in "ab":
                reply = await pair.until(client, name, finished)
                assert (reply.rounds_merged, reply.rounds_run) == (3, 3)
            assert "0 of 3" not in await pair.types("status", pair.address["a"])
