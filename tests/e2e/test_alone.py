"""Two real daemons: what a user is told of a run without the peer, and of a run with it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from fednode.observe.client import Client
from fednode.storage.store import newest
from tests.e2e.test_two_daemons import Pair, fednode, pair

__all__ = ["pair"]
pytestmark = pytest.mark.e2e
RUN = ("--set", "policy.name=promptfl", "--set", "rounds.max=3")
NEVER_MERGED = 7


def finished(reply: Any) -> bool:
    return bool(reply.life == "finished")


async def test_a_run_without_its_peer_is_never_shown_as_a_federation(pair: Pair) -> None:
    where = pair.address["a"]
    async with Client() as client, pair.running("a", "--alone", *RUN):
        reply = await pair.until(client, "a", finished)
        assert (reply.rounds_merged, reply.rounds_run) == (0, 3)
        one = await asyncio.to_thread(fednode, "status", where, folder=pair.folder)
        mesh = await asyncio.to_thread(
            fednode, "status", "--peers", str(pair.peers), folder=pair.folder
        )
    for said in (one, mesh):
        assert said.returncode == NEVER_MERGED, said
    assert "0 of 3 rounds merged" in " ".join(one.stdout.split())


async def test_a_run_with_its_peer_ends_with_code_0(pair: Pair) -> None:
    async with Client() as client, pair.running("a", *RUN), pair.running("b", *RUN):
        for name in "ab":
            reply = await pair.until(client, name, finished)
            assert (reply.rounds_merged, reply.rounds_run) == (3, 3)
        where = pair.address["a"]
        said = await asyncio.to_thread(fednode, "status", where, folder=pair.folder)
    assert said.returncode == 0, said
    assert "0 of 3" not in said.stdout


async def test_a_run_without_its_peer_begins_again_with_it_when_the_operator_asks(
    pair: Pair,
) -> None:
    where = pair.address["a"]
    async with Client() as client, pair.running("a", "--alone", *RUN):
        await pair.until(client, "a", finished)
        async with pair.running("b", *RUN):
            waits = await pair.until(
                client, "b", lambda reply: any("fednode redo a" in one for one in reply.notes)
            )
            assert waits.life == "waiting"
            met = "b can be reached now: fednode redo a begins the rounds again"
            reply = await pair.until(
                client, "a", lambda reply: any(met in one for one in reply.warnings)
            )
            assert (reply.rounds_merged, reply.rounds_run) == (0, 3)
            said = await asyncio.to_thread(fednode, "redo", where, folder=pair.folder)
            assert (said.returncode, said.stdout) == (0, "a was asked to redo\n")
            for name in "ab":
                reply = await pair.until(
                    client, name, lambda reply: finished(reply) and reply.rounds_merged == 3
                )
                assert (reply.rounds_merged, reply.rounds_run) == (3, 3)
            after = await asyncio.to_thread(fednode, "status", where, folder=pair.folder)
            assert after.returncode == 0, after
    old, _ = newest(pair.folder / "a" / "runs" / "1")
    assert (old.policy.round, old.merge_counts, old.redone) == (3, (3, 0), 0)
    new, _ = newest(pair.folder / "a")
    assert (new.policy.round, new.merge_counts, new.redone) == (3, (3, 3), 1)


async def test_a_run_without_its_peer_begins_again_by_itself_even_after_a_kill(
    pair: Pair,
) -> None:
    async with Client() as client:
        async with pair.running("a", "--alone", *RUN):
            reply = await pair.until(client, "a", finished)
            os.kill(reply.pid, signal.SIGKILL)
        again = ("--set", "rounds.redo=true", *RUN)
        async with pair.running("a", *again), pair.running("b", *again):
            for name in "ab":
                reply = await pair.until(
                    client, name, lambda reply: finished(reply) and reply.rounds_merged == 3
                )
                assert (reply.rounds_merged, reply.rounds_run) == (3, 3)
