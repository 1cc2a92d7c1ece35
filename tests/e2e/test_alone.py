"""Two real daemons: what a user is told of a run without the peer, and of a run with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemons import CLOSED, Nodes, finished
from tests.unit.commands.run import Fednode

pytestmark = pytest.mark.e2e
RUN = (*CLOSED, "--set", "policy.name=promptfl", "--set", "rounds.max=3")
NEVER_MERGED = 1


async def test_a_run_without_its_peer_is_never_shown_as_a_federation(
    here: Path, fednode: Fednode
) -> None:
    nodes = Nodes(here, "ab", RUN, tls=False)
    async with nodes.running("a", "--alone"):
        reply = await nodes.until("a", finished)
        assert (reply.rounds_merged, reply.rounds_run) == (0, 3)
        for words in (("--peers", nodes.peers), (nodes.address["a"],)):
            shown = await fednode.types("status", *words, code=NEVER_MERGED)
    assert "0 of 3 rounds merged" in " ".join(shown.split())


async def test_a_node_that_ran_alone_begins_again_with_its_peer_after_a_reset(
    here: Path, fednode: Fednode
) -> None:
    nodes = Nodes(here, "ab", RUN, tls=False)
    async with nodes.running("a", "--alone"):
        await nodes.until("a", finished)
        async with nodes.running("b"):
            why = "a (it ran all its rounds alone: fednode reset and fednode start there)"
            waits = await nodes.until("b", lambda reply: any(why in one for one in reply.notes))
            assert waits.life == "waiting"
            met = "b can be reached now: fednode reset and fednode start at a begin the rounds"
            reply = await nodes.until("a", lambda reply: any(met in one for one in reply.warnings))
            assert (reply.rounds_merged, reply.rounds_run) == (0, 3)
    await fednode.types("reset", "--yes", "--state", here / "a")
    async with nodes.all_running():
        for name in "ab":
            reply = await nodes.until(name, finished)
            assert (reply.rounds_merged, reply.rounds_run) == (3, 3)
        assert "0 of 3" not in await fednode.types("status", nodes.address["a"])
