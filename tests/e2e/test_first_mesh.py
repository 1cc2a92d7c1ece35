"""Three sites with empty home folders become a mesh by three commands; a fourth joins it later."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from PIL import Image

from fednode.app.client import client_of, places_of
from fednode.app.plan import learner_of
from fednode.core.settings import RoundSettings, StartSettings
from fednode.enrolment.invitation import decode
from fednode.errors import FednodeError
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.settings.peers import load_peers
from fednode.settings.read import Source, settings_of, start_of
from fednode.transports.ports import free_ports
from fednode_bootstrap.daemon import Daemon, stop
from tests.contract.faults import pause
from tests.daemons import GUARD_S, finished, start, states
from tests.unit.commands.run import Fednode
from tests.unit.storage.stored import read_snapshot

pytestmark = pytest.mark.e2e
ROUNDS = 6


@pytest.fixture(autouse=True)
def closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all nodes tune without images and torch, and see soon who is gone."""
    monkeypatch.setenv("FEDNODE_TUNING__KIND", "closed-form")
    monkeypatch.setenv("FEDNODE_MEMBERSHIP__PRESET", "local")


class Site:
    """One organisation: an empty home folder, some images, an address, a daemon."""

    def __init__(self, folder: Path, name: str, place: int, port: int) -> None:
        self.name, self.home = name, folder / name
        self.address = f"127.0.0.{place}:{port}"
        self.images = self.home / "images"
        (self.images / "one").mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), place, np.uint8)).save(self.images / "one" / "1.png")
        self.state = self.home / ".local/state/fednode/ward" / name
        self.typed = list[Sequence[str]]()
        self.daemon: Daemon | None = None

    @contextlib.contextmanager
    def at_home(self) -> Iterator[None]:
        """Let this process have the site's home and folder."""
        folder = self.home / "ward"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(self.home))
            patch.chdir(folder if folder.exists() else self.home)
            yield

    @contextlib.asynccontextmanager
    async def runs(self, *words: str) -> AsyncIterator[Daemon]:
        """Type a command that runs the daemon."""
        self.typed.append(words)
        self.daemon = Daemon(self.name, words, self.home / "log")
        with self.at_home():
            await start(self.daemon)
        try:
            yield self.daemon
        finally:
            await stop((self.daemon,), GUARD_S)

    async def types(self, fednode: Fednode, *words: str) -> str:
        """Type a command, in this process; return what it prints."""
        self.typed.append(words)
        with self.at_home():
            await fednode.types(*words)
        return fednode.out + fednode.err

    async def until(self, holds: Callable[[Any], bool]) -> Any:
        """Ask the daemon again and again, with its own key, until something holds of its status."""
        async with asyncio.timeout(GUARD_S):
            while True:
                with contextlib.suppress(FednodeError):
                    peers = load_peers(self.home / "ward" / "peers.yaml")
                    async with client_of(peers, self.state) as client:
                        at = places_of(peers)[self.name]
                        while not holds(reply := await client.status(at)):
                            await pause(0.1)
                        return reply
                assert self.daemon is None or self.daemon.running, (self.home / "log").read_text()
                await pause(0.1)


async def invited(fednode: Fednode, founder: Site, site: Site) -> tuple[str, ...]:
    """Let the founder invite a site; return the one command that the site types."""
    said = await founder.types(fednode, "invite", site.name)
    link = next(line for line in said.splitlines() if line.startswith("FEDNODE:"))
    words = said.splitlines()[-1].rpartition(": ")[2]
    assert len(words.split()) == 5
    at = ("--data", str(site.images), "--address", site.address)
    return ("join", link, *at, "--yes", "--words", words)


async def invited_on_the_page(founder: Site, site: Site) -> tuple[str, ...]:
    """Let the founder invite a site on its node's page; return the command that the site types."""
    page = (await founder.until(lambda reply: bool(reply.page))).page
    token = (founder.state / "page-token").read_text().strip()
    headers = {"Origin": page.rstrip("/"), "Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{page}sites/invite", data={"site": site.name}) as answer,
    ):
        made = await answer.json()
    at = ("--data", str(site.images), "--address", site.address)
    return ("join", made["link"], *at, "--yes", "--words", made["words"])


async def test_three_sites_become_a_mesh_and_a_fourth_joins_it(
    tmp_path: Path, fednode: Fednode
) -> None:
    ports = free_ports(4)
    a, b, c, d = sites = [Site(tmp_path, name, 2 + at, ports[at]) for at, name in enumerate("abcd")]
    found = ("--site", "a", "--address", a.address, "--policy", "promptfl")
    rounds = ("--rounds", str(ROUNDS), "--wait", "3")
    await a.types(fednode, "init", "ward", "--data", str(a.images), *found, *rounds)
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(a.runs("start"))
        await a.until(lambda reply: reply.name == "a")
        for site in (b, c):
            await running.enter_async_context(site.runs(*await invited(fednode, a, site)))
        three = (a, b, c)
        for site in three:
            reply = await site.until(finished)
            assert (reply.rounds_merged, reply.rounds_run) == (ROUNDS, ROUNDS)
        before = [site.daemon and site.daemon.pid for site in three]
        typed = [len(site.typed) for site in three]
        assert typed == [4, 1, 1]  # init, start and two invitations; one command each
        assert bits(*(site.state for site in three)) == listed()

        await running.enter_async_context(d.runs(*await invited_on_the_page(a, d)))
        for site in three:
            await site.until(lambda reply: states(reply).get("d") == "alive")
        assert [site.daemon and site.daemon.pid for site in three] == before
        await d.until(lambda reply: {peer.name for peer in reply.peers} == {"a", "b", "c"})
        assert [site for site in sites if "insecure: true" in mesh_file(site)] == []
        secrets = {site: (links_of(site), site.typed[0][1].encode()) for site in (b, d)}
        for site, hidden in secrets.items():
            for file in (a.home / "log", site.home / "log", *a.state.rglob("*")):
                text = file.read_bytes() if file.is_file() else b""
                assert not any(secret in text for secret in hidden), f"it is in {file}"

        await d.types(fednode, "leave")
        await a.until(lambda reply: states(reply).get("d") == "left")
        assert d.daemon is not None
        async with asyncio.timeout(GUARD_S):
            assert await d.daemon.ended() == 0
        said = await d.types(fednode, "reset", "--all", "--yes")
        assert "To join again, move the folder of the settings away" in said
        assert not d.state.parent.exists(), "nothing that the daemon wrote is left"


def mesh_file(site: Site) -> str:
    return "\n".join(
        line
        for line in (site.home / "ward" / "peers.yaml").read_text().splitlines()
        if not line.startswith("#")
    )


def links_of(site: Site) -> bytes:
    """Return the text of the token in the link that a site typed."""
    return decode(site.typed[0][1]).token.hex().encode()


def bits(*states: Path) -> list[str]:
    return [read_snapshot(state).policy.tensors.digest for state in states]


def listed() -> list[str]:
    """Return the bits of the same nodes in a simulated mesh, where each one is listed."""
    policy = {"policy": {"name": "promptfl"}, "tuning": {"kind": "closed-form"}}
    settings = settings_of(Source("test", policy))
    world = World(7)
    plan = Setup(
        policy=settings.policy.kind,
        config=settings.policy.config,
        rounds=RoundSettings("sync", max=ROUNDS, start=StartSettings(2)),
        seed=settings.seed,
        start=start_of(settings),
    )
    world.populate(plan, {name: learner_of(settings, name) for name in "abc"})
    assert world.run(world.finished, 36_000.0)
    snapshots = [world.hosts[name].durable for name in "abc"]
    return [held.policy.tensors.digest for held in snapshots if held is not None]


def serving(relay: Site, founder: Site) -> tuple[str, ...]:
    """Return the command that runs a relay, with the folder that the founder issued."""
    return ("relay", "--state", str(founder.home / "ward/out/r"), "--listen", relay.address)


async def test_two_sites_that_take_no_connections_become_a_mesh_through_a_relay(
    tmp_path: Path, fednode: Fednode
) -> None:
    (port,) = free_ports(1)
    a, b, relay = (Site(tmp_path, name, 2 + at, port) for at, name in enumerate(("a", "b", "r")))
    a.address = b.address = "relay"
    found = ("--site", "a", "--policy", "promptfl", "--rounds", "2")
    listed = ("--relay", f"r={relay.address}")
    said = await a.types(fednode, "init", "ward", "--data", str(a.images), *found, *listed)
    assert "node a at relay" in said
    await a.types(fednode, "invite", "--out", "out", f"r={relay.address}")
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(relay.runs(*serving(relay, a)))
        await running.enter_async_context(a.runs("start"))
        await a.until(lambda reply: reply.name == "a")
        await running.enter_async_context(b.runs(*await invited(fednode, a, b)))
        for site in (a, b):
            reply = await site.until(finished)
            assert (reply.rounds_merged, reply.rounds_run) == (2, 2)
        assert len(set(bits(a.state, b.state))) == 1
        assert [len(site.typed) for site in (a, b)] == [4, 1]


@pytest.mark.slow
async def test_a_site_joins_through_a_sponsor_after_the_founder_was_killed(
    tmp_path: Path, fednode: Fednode
) -> None:
    ports = free_ports(5)
    a, b, c, d, e = (Site(tmp_path, name, 2 + at, ports[at]) for at, name in enumerate("abcde"))
    found = ("--site", "a", "--address", a.address, "--policy", "promptfl", "--rounds", "3")
    await a.types(fednode, "init", "ward", "--data", str(a.images), *found)
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(a.runs("start"))
        await a.until(lambda reply: reply.name == "a")
        for site in (b, d):
            await running.enter_async_context(site.runs(*await invited(fednode, a, site)))
        await b.until(finished)
        assert "b admits newcomers until " in await a.types(fednode, "sponsor", "b")
        await b.until(lambda reply: states(reply).get("d") == "alive")
        assert "is revoked" in await a.types(fednode, "remove", "d", "--yes")
        await b.until(lambda reply: states(reply).get("d") == "revoked")
        assert d.daemon is not None
        assert await d.daemon.ended() == 4
        log = await asyncio.to_thread((d.home / "log").read_text)
        assert "The mesh 'ward' revoked the key of this node, 'd': ask for a new link." in log
        assert a.daemon is not None
        a.daemon.signal(signal.SIGKILL)
        await a.daemon.ended()
        await running.enter_async_context(c.runs(*await invited(fednode, b, c)))
        await c.until(lambda reply: states(reply).get("b") == "alive")
        await b.until(lambda reply: states(reply).get("c") == "alive")
        assert "name: b" in mesh_file(c)
        await running.enter_async_context(e.runs(*await invited(fednode, b, e)))
        await c.until(lambda reply: states(reply).get("e") == "alive")
        with pytest.raises(AssertionError, match="This takes the mesh key, and there is no file"):
            await b.types(fednode, "remove", "e", "--yes")
        await running.enter_async_context(a.runs("start"))
        await a.until(lambda reply: states(reply).get("c") == "alive")
        await a.until(lambda reply: states(reply).get("e") == "alive")
        said = await a.types(fednode, "remove", "b", "--yes")
        assert "b had admitted c, e: nodes that have met these sites go on with them." in said
        await c.until(lambda reply: states(reply).get("b") == "revoked")
        await a.until(lambda reply: states(reply).get("c") == "alive")
        await c.until(lambda reply: states(reply).get("a") == "alive")
