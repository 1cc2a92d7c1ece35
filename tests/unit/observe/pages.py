"""A running node with its page, and a reader of the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from fednode.errors import ConfigError
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.admitting import Admitting, Invitation, Site
from fednode.observe.metrics import Metrics
from fednode.observe.status import NodeService
from fednode.observe.web import Web
from fednode.settings.output import PageSettings
from tests.contract.memory_transport import Hub
from tests.unit.runtime.daemons import ABOUT, running

TOKEN = "sixteen-letters-or-more"
DRAWN = "drawn-by-the-node-itself"
LINK = "FEDNODE:" + 12 * "LETTERSOFALINK2345"
OPERATOR = {"Authorization": "Bearer " + DRAWN}
READER = {"Authorization": "Bearer " + TOKEN}
DOCUMENTS = ("status", "peers", "history", "events")
HOSTILE = '<img src=x onerror="alert(1)">'


@asynccontextmanager
async def page(
    folder: Path,
    settings: PageSettings | None = None,
    drawn: str = DRAWN,
    peers: Sequence[str] = (),
    admitting: Admitting | None = None,
) -> AsyncIterator[tuple[NodeService, str]]:
    """Run a node with its page; yield its service and the page's URL.

    peers: for whom the node waits, in vain. Without any, its rounds are over.
    """
    life = "waiting" if peers else "finished"
    async with running(Hub(), folder, "a", peers, most=3) as node:
        await node.until(lambda: node.driver.kernel.view().life == life)
        service = NodeService(node.store, ABOUT, events=node.driver.telemetry.events)
        service.attach(node.driver, QuadraticLearner("a"))
        service.admitting = admitting
        metrics = Metrics()
        metrics.watch(service.now)
        web = Web(service, metrics.text, settings or PageSettings(), drawn)
        try:
            yield service, await web.listen("127.0.0.1:0")
        finally:
            await web.close()
            await web.close()


class Desk:
    """An admission of newcomers that notes what it is asked for."""

    def __init__(self) -> None:
        self.open, self.asked = True, list[tuple[object, ...]]()
        self.knocking = [
            Site(
                "clinic-with-a-long-name-in-the-north", "clinic.example:7100", "KEY-1", "a b c d e"
            ),
            Site("lab", "lab.example:7100", "KEY-2", "p q r s t"),
        ]

    async def waiting(self) -> list[Site]:
        return self.knocking

    async def members(self) -> list[Site]:
        return [
            Site("a", "a.example:7100", "KEY-0", "one two three four five"),
            Site("b", "", "", "u"),
        ]

    async def mesh_words(self) -> str:
        return "k l m n o"

    async def invite(self, site: str, approve: bool) -> Invitation:
        self.asked.append((site, approve))
        if site != site.lower():
            raise ConfigError(f"SITE is {site!r}; {HOSTILE}")
        return Invitation(site, LINK, "f g h i j", 7, approve)

    async def settle(self, name: str, id: str, good: bool) -> str:
        self.asked.append((name, id, good))
        self.knocking = [site for site in self.knocking if site.name != name]
        return f"{name} was answered"


async def get(url: str, **more: Any) -> tuple[int, str, Mapping[str, str]]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, allow_redirects=False, **more) as answer,
    ):
        return answer.status, await answer.text(errors="replace"), answer.headers


async def read(url: str, path: str, headers: Mapping[str, str] | None = None) -> Any:
    """Return a JSON document of the page."""
    code, text, _ = await get(url + path, headers=headers)
    assert code == 200, text
    return json.loads(text)


async def seen(url: str, headers: Mapping[str, str] | None = None) -> str:
    """Return all that a reader of the page is sent, but for sites that want to be members."""
    return "".join([(await get(url + path, headers=headers))[1] for path in DOCUMENTS])


def without_header(url: str) -> list[dict[str, str]]:
    """Return the headers of requests that show the operator's token in another place."""
    port = url.rstrip("/").rpartition(":")[2]
    names = ("fednode_token", f"fednode_token_{port}", "token", "Authorization")
    cookies = [f"{name}={value}" for name in names for value in (DRAWN, f"Bearer {DRAWN}")]
    return [
        *({"Cookie": cookie, "Origin": url.rstrip("/")} for cookie in cookies),
        *({name: DRAWN} for name in ("token", "X-Token", "Referer", "Proxy-Authorization")),
        {"Authorization": f"Basic {DRAWN}"},
    ]
