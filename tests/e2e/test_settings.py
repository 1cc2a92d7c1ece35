"""Shared settings change while daemons run, and a site that refuses goes on alone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fednode.app.network import client_of, places_of
from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode.settings.peers import load_peers
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.e2e.test_first_mesh import (
    ENVIRONMENT,
    GUARD_S,
    Site,
    invited,
    relay_key,
    serving,
    state_of,
)
from tests.unit.commands.run import Fednode

pytestmark = pytest.mark.e2e
PACE = "FEDNODE_ROUNDS__MIN_INTERVAL_S"
"""Rounds of a closed-form learner take no time; a pause between them leaves time to decide."""
DEADLINE = "FEDNODE_ROUNDS__DEADLINE_S"
MANY = 900
LOST_MAX = 2


class Watched(Site):
    """A site that is asked over one connection; a node takes two new ones a second of a key."""

    def __init__(self, folder: Path, name: str, place: int, port: int) -> None:
        super().__init__(folder, name, place, port)
        self._client: Client | None = None

    async def until(self, holds: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(GUARD_S):
            while True:
                with contextlib.suppress(FednodeError):
                    peers = load_peers(self.home / "ward" / "peers.yaml")
                    if self._client is None:
                        self._client = client_of(peers, self.state)
                    at = places_of(peers, self.state)[self.name]
                    reply = await self._client.status(at)
                    if holds(reply):
                        return reply
                assert self.daemon is None or self.daemon.running, (self.home / "log").read_text()
                await pause(0.05)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


@contextlib.asynccontextmanager
async def mesh(
    folder: Path, names: str, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Watched]]:
    """Run a mesh of sites that were invited by the first."""
    for key, value in {**ENVIRONMENT, PACE: "0.1", DEADLINE: "3"}.items():
        monkeypatch.setenv(key, value)
    ports = free_ports(len(names))
    sites = [Watched(folder, name, 2 + at, ports[at]) for at, name in enumerate(names)]
    first = sites[0]
    found = ("--site", first.name, "--address", first.address, "--policy", "promptfl")
    rounds = ("--rounds", str(MANY), "--wait", str(len(sites)))
    await first.types(fednode, "found", "ward", "--data", str(first.images), *found, *rounds)
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(first.runs("start"))
        await first.until(lambda reply: reply.name == first.name)
        for site in sites[1:]:
            await running.enter_async_context(site.runs(*await invited(fednode, first, site)))
        for site in sites:
            running.push_async_callback(site.close)
            await site.until(lambda reply: reply.round >= 3)
        yield sites


def proposal(reply: Any) -> Any:
    return reply.settings.proposals[0] if reply.settings.proposals else None


async def proposed(fednode: Fednode, site: Site, after: int, *words: str) -> int:
    """Let a site propose a change; return the round from which on it holds."""
    given = ("settings", "propose", *words, "--after", str(after), "--yes")
    said = await site.types(fednode, *given)
    assert "accepts settings" in said
    return int(said.partition("from round ")[2].split()[0])


async def taken(fednode: Fednode, sites: Sequence[Site], word: str = "take") -> None:
    """Let sites decide on the newest change, once they know it."""
    for site in sites:
        await site.until(lambda reply: proposal(reply) is not None)
        await site.types(fednode, "settings", word, "--yes")


async def in_force(sites: Sequence[Site], number: int) -> list[Any]:
    """Wait until settings are in force at sites; return their status."""
    return [await site.until(lambda reply: reply.settings.number == number) for site in sites]


async def merging(site: Site, rounds: int) -> Any:
    """Wait until a site has merged peers' prompts in so many rounds of its run.

    At most LOST_MAX rounds merged none.
    """
    reply = await site.until(lambda reply: reply.rounds_merged >= rounds)
    assert reply.round - reply.rounds_merged <= LOST_MAX
    return reply


async def changes(
    fednode: Fednode, sites: Sequence[Site], others: Sequence[Site], after: int
) -> None:
    """Change rounds.max at all sites, then the policy at some; the others refuse, then follow."""
    first, every = sites[0], (*sites, *others)
    before = [site.daemon and site.daemon.pid for site in every]
    for site in every:
        reply = await site.until(lambda reply: reply.life == "running")
        assert (reply.settings.number, reply.settings.signer) == (1, first.name)

    start = await proposed(fednode, first, after, "--set", "rounds.max=800")
    await taken(fednode, every[1:])
    for reply in await in_force(every, 2):
        assert (reply.rounds_max, reply.policy) == (800, "promptfl")
    for site in every:
        reply = await merging(site, start + 3)
        assert all(peer.state == "alive" for peer in reply.peers)

    await proposed(fednode, first, after, "--policy", "fedpgp")
    await taken(fednode, sites[1:])
    await taken(fednode, others, "refuse")
    for reply in await in_force(sites, 3):
        assert reply.policy == "fedpgp"
    for site in sites:
        await merging(site, 5)
        apart = {one.name for one in others}
        await site.until(lambda reply: set(reply.settings.others) == apart)  # noqa: B023
    for site in others:
        reply = await site.until(lambda reply: state_of(reply, first.name) == "refused")
        assert (reply.policy, reply.settings.number) == ("promptfl", 2)
        assert proposal(reply).decision == "refused"
        said = await site.types(fednode, "settings")
        names = ", ".join(one.name for one in sites)
        assert f"  {names}: under newer settings, which are proposed here" in said
        assert "policy.name: promptfl -> fedpgp" in said
        assert "here: refused" in said

    await taken(fednode, others)  # a site may change its mind
    await in_force(others, 3)
    for site in every:
        await site.until(lambda reply: all(peer.state == "alive" for peer in reply.peers))
        assert list(site.state.glob("runs/1/tensors/*")), "the run of the old policy is kept"
    assert [site.daemon and site.daemon.pid for site in every] == before


async def test_more_rounds_at_two_sites_that_never_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    async with mesh(tmp_path, "ab", fednode, monkeypatch) as (a, b):
        before = [site.daemon and site.daemon.pid for site in (a, b)]
        start = await proposed(fednode, a, 15, "--set", "rounds.max=800")
        await taken(fednode, [b])
        for reply in await in_force((a, b), 2):
            assert reply.rounds_max == 800
        for site in (a, b):
            await site.until(lambda reply: reply.rounds_merged > start)
        assert [site.daemon and site.daemon.pid for site in (a, b)] == before


@pytest.mark.slow
async def test_rounds_and_policy_change_while_daemons_run_and_a_site_that_refuses_goes_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    async with mesh(tmp_path, "abc", fednode, monkeypatch) as sites:
        await changes(fednode, sites[:2], sites[2:], 80)


@pytest.mark.slow
async def test_five_daemons_change_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    async with mesh(tmp_path, "abcde", fednode, monkeypatch) as sites:
        await changes(fednode, sites[:4], sites[4:], 120)


@pytest.mark.slow
async def test_a_site_that_is_killed_before_the_change_comes_back_and_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    async with mesh(tmp_path, "ab", fednode, monkeypatch) as (a, b):
        start = await proposed(fednode, a, 40, "--policy", "fedpgp")
        await taken(fednode, [b])
        assert b.daemon is not None
        reply = await b.until(lambda reply: proposal(reply).decision == "accepted")
        assert reply.round < start
        b.daemon.signal(signal.SIGKILL)
        await b.daemon.ended()
        await in_force([a], 2)
        async with b.runs("start"):
            await in_force([b], 2)
            reply = await b.until(lambda reply: reply.policy == "fedpgp" and reply.round > 0)
            met = reply.rounds_merged
            await b.until(lambda reply: reply.rounds_merged >= met + 2)
            assert list(b.state.glob("runs/1/tensors/*"))


@pytest.mark.slow
async def test_nodes_move_to_the_relay_of_a_document_and_the_old_one_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in {**ENVIRONMENT, PACE: "0.1", DEADLINE: "3"}.items():
        monkeypatch.setenv(key, value)
    fednode, ports = Fednode(capsys), free_ports(2)
    a, b = (Watched(tmp_path, name, 2, 0) for name in "ab")
    old, new = (Site(tmp_path, name, 4 + at, ports[at]) for at, name in enumerate(("old", "new")))
    a.address = b.address = "relay"
    ids = {one.name: await relay_key(fednode, one) for one in (old, new)}
    listed = ("--relay", old.address, ids["old"])
    rounds = ("--rounds", str(MANY), "--site", "a", "--policy", "promptfl")
    await a.types(fednode, "found", "ward", "--data", str(a.images), *rounds, *listed)
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(old.runs(*serving(old, a)))
        await running.enter_async_context(new.runs(*serving(new, a)))
        await running.enter_async_context(a.runs("start"))
        await a.until(lambda reply: reply.name == "a")
        await running.enter_async_context(b.runs(*await invited(fednode, a, b)))
        for site in (a, b):
            running.push_async_callback(site.close)
            await site.until(lambda reply: reply.round >= 3)
        before = [site.daemon and site.daemon.pid for site in (a, b)]
        file = a.home / "ward" / "peers.yaml"
        text = await asyncio.to_thread(file.read_text)
        other = text.replace(old.address, new.address).replace(ids["old"], ids["new"])
        await asyncio.to_thread(file.write_text, other)
        await proposed(fednode, a, 10)
        await taken(fednode, [b])
        await in_force([a, b], 2)
        for site in (a, b):
            await site.until(
                lambda reply: (
                    {one.address: one.state for one in reply.relays}.get(new.address) == "waiting"
                )
            )
            await site.close()
            site._client = None
        assert old.daemon is not None
        old.daemon.signal(signal.SIGKILL)
        await old.daemon.ended()
        reply = await a.until(lambda reply: state_of(reply, "b") == "alive")
        for site in (a, b):
            await site.until(lambda now: now.round >= reply.round + 20)
            now = await site.until(lambda now: all(p.path.endswith(new.address) for p in now.peers))
            assert now.round - now.rounds_merged <= LOST_MAX
        assert [site.daemon and site.daemon.pid for site in (a, b)] == before
