"""The shared settings change: a site refuses, takes them over, restarts and goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import states
from tests.e2e.test_first_mesh import Site, closed_form, invited
from tests.unit.commands.run import Fednode
from tests.unit.storage.stored import read_snapshot

__all__ = ["closed_form"]
pytestmark = pytest.mark.e2e


async def changed(site: Site, old: str, new: str) -> None:
    """Edit the node.yaml of a site."""
    file = site.home / "ward" / "node.yaml"
    text = await asyncio.to_thread(file.read_text)
    assert text.count(old) == 1
    await asyncio.to_thread(file.write_text, text.replace(old, new))


async def pulled(fednode: Fednode, site: Site) -> str:
    return await site.types(fednode, "settings", "pull", "--yes")


@contextlib.asynccontextmanager
async def running(*sites: Site) -> AsyncIterator[None]:
    """Start sites again."""
    async with contextlib.AsyncExitStack() as daemons:
        for site in sites:
            await daemons.enter_async_context(site.runs("start"))
        yield


async def apart(one: Site, other: Site, sentence: str) -> None:
    """Wait until both of two sites name a difference of their settings."""

    def refused(reply: Any) -> bool:
        return ("refused", sentence) in [(peer.state, peer.reason) for peer in reply.peers]

    await one.until(refused)
    await other.until(refused)


async def test_a_site_takes_over_the_founders_settings_and_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fednode: Fednode
) -> None:
    # Rounds of a closed-form learner take no time; a pause between them leaves time to look.
    monkeypatch.setenv("FEDNODE_ROUNDS__MIN_INTERVAL_S", "0.1")
    monkeypatch.setenv("FEDNODE_ROUNDS__DEADLINE_S", "3")
    a, b = (Site(tmp_path, name, 2 + at, 7100) for at, name in enumerate("ab"))
    found = ("--site", "a", "--address", a.address, "--policy", "promptfl", "--rounds", "900")
    await a.types(fednode, "init", "ward", "--data", str(a.images), *found, "--wait", "2")
    async with a.runs("start"):
        await a.until(lambda reply: reply.name == "a")
        async with b.runs(*await invited(fednode, a, b)):
            before = await b.until(lambda reply: reply.round >= 3)
            assert "already: nothing is to be done" in await b.types(fednode, "settings", "pull")
    assert "900" in await b.types(fednode, "settings")

    await changed(a, "max: 900", "max: 800")
    async with running(a, b):
        await apart(a, b, "rounds.max is 800 at 'a' and 900 at 'b'")
        said = await pulled(fednode, b)
        assert "rounds.max: 900 -> 800" in said
    kept = b.home / "ward" / "node.yaml.before"
    assert "max: 900" in kept.read_text()
    async with running(a, b):
        for site in (a, b):
            reply = await site.until(lambda reply: reply.round > before.round + 3)
            assert (reply.rounds_max, reply.policy) == (800, "promptfl")
        await b.until(lambda reply: states(reply).get("a") == "alive")
    assert not list(b.state.glob("runs/*"))

    ran = read_snapshot(b.state).policy.round
    await changed(a, "  name: promptfl", "  name: fedpgp")
    async with running(a, b):
        await apart(a, b, "policy.name is fedpgp at 'a' and promptfl at 'b'")
        assert "policy.name: promptfl -> fedpgp" in await pulled(fednode, b)
    async with running(a, b):
        for site in (a, b):
            await site.until(lambda reply: reply.policy == "fedpgp" and reply.round >= 3)
            log = (site.home / "log").read_text()
            assert "begin anew, because policy.name was promptfl and is fedpgp" in log
        await b.until(lambda reply: states(reply).get("a") == "alive")
    for site in (a, b):
        assert read_snapshot(site.state / "runs" / "1").policy.round >= ran

    with pytest.raises(AssertionError, match="name another member, as in fednode settings pull"):
        await pulled(fednode, b)
