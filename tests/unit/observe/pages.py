"""A running node with its page, and a reader of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from fednode.learn.closed_form import ClosedFormLearner
from fednode.observe.metrics import Metrics
from fednode.observe.status import NodeService
from fednode.observe.web import Web
from fednode.settings.output import PageSettings
from tests.contract.memory_transport import Hub
from tests.unit.runtime.daemons import ABOUT, running

TOKEN = "sixteen-letters-or-more"
DRAWN = "drawn-by-the-node-itself"
HOSTILE = '<img src=x onerror="alert(1)">'


class Pictured(ClosedFormLearner):
    """A learner with images to show."""

    pictures: Mapping[str, tuple[Path, ...]] = {}

    @property
    def examples(self) -> Mapping[str, tuple[Path, ...]]:
        return self.pictures


@asynccontextmanager
async def page(
    folder: Path,
    settings: PageSettings | None = None,
    pictures: Mapping[str, Any] | None = None,
    drawn: str = DRAWN,
    peers: Sequence[str] = (),
) -> AsyncIterator[tuple[NodeService, str]]:
    """Run a node with its page; yield its service and the page's URL.

    peers: for whom the node waits, in vain. Without any, its rounds are over.
    """
    life = "waiting" if peers else "finished"
    async with running(Hub(), folder, "a", peers, most=3) as node:
        await node.until(lambda: node.driver.kernel.view().life == life)
        learner = Pictured("a")
        learner.pictures = pictures or {}
        service = NodeService(node.store, ABOUT, events=node.driver.telemetry.events)
        service.attach(node.driver, learner)
        metrics = Metrics()
        metrics.watch(service.read)
        web = Web(service, metrics.text, settings or PageSettings(), drawn)
        try:
            yield service, await web.listen("127.0.0.1:0")
        finally:
            await web.close()
            await web.close()


async def get(url: str, **more: Any) -> tuple[int, str, Mapping[str, str]]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, allow_redirects=False, **more) as answer,
    ):
        return answer.status, await answer.text(errors="replace"), answer.headers
