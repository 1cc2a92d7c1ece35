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
from fednode.observe.metrics import Metrics
from fednode.observe.reply import Admission
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
    admitting: Admission | None = None,
) -> AsyncIterator[tuple[NodeService, str]]:
    """Run a node with its page; yield its service and the page's URL.

    peers: for whom the node waits, in vain. Without any, its rounds are over.
    """
    life = "waiting" if peers else "finished"
    async with running(Hub(), folder, "a", peers, most=3) as node:
        await node.until(lambda: node.driver.kernel.view().life == life)
        service = NodeService(node.store, ABOUT, events=node.driver.telemetry.events)
        service.attach(node.driver, QuadraticLearner("a"))
        service.admission = admitting
        metrics = Metrics()
        metrics.watch(service.now)
        web = Web(service, metrics.text, settings or PageSettings(), drawn)
        try:
            yield service, await web.listen("127.0.0.1:0")
        finally:
            await web.close()
            await web.close()


def site(name: str, address: str, id: str, words: str) -> dict[str, str]:
    return {"name": name, "address": address, "id": id, "words": words}


class Desk:
    """An admission of newcomers that notes what it is asked for."""

    def __init__(self) -> None:
        self.open, self.asked = True, list[tuple[object, ...]]()
        clinic = "clinic-with-a-long-name-in-the-north"
        self.waiting = [
            site(clinic, "clinic.example:7100", "KEY-1", "a b c d e"),
            site("lab", "lab.example:7100", "KEY-2", "p q r s t"),
        ]
        own = site("a", "a.example:7100", "KEY-0", "one two three four five")
        self.members = [own, site("b", "", "", "u")]

    def warning(self) -> str:
        return ""

    def take_certificate(self, pem: bytes) -> str:
        return pem.decode()

    async def sites(self) -> dict[str, Any]:
        return {"waiting": self.waiting, "members": self.members, "mesh_words": "k l m n o"}

    async def invite(self, site: str, approve: bool) -> dict[str, Any]:
        self.asked.append((site, approve))
        if site != site.lower():
            raise ConfigError(f"SITE is {site!r}; {HOSTILE}")
        words = "f g h i j"
        return {"site": site, "link": LINK, "words": words, "days": 7, "approve": approve}

    async def settle(self, name: str, id: str, good: bool) -> str:
        self.asked.append((name, id, good))
        self.waiting = [one for one in self.waiting if one["name"] != name]
        return f"{name} was answered"


async def get(url: str, **more: Any) -> tuple[int, str, Mapping[str, str]]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, allow_redirects=False, **more) as answer,
    ):
        return answer.status, await answer.text(errors="replace"), answer.headers


async def post(url: str, path: str, form: Any = None, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(url + path, data=form, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text()


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
