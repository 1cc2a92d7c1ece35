"""The node's page: what it shows, and what it sends as that changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp

from fednode.core.events import Record
from fednode.observe.metrics import Metrics
from fednode.observe.page import PARTS, Page
from fednode.observe.status import NodeService
from fednode.observe.web import Web
from fednode.settings.output import PageSettings
from fednode.storage.store import Store
from fednode.wire.gen import status_pb2
from tests.unit.observe.pages import HOSTILE, get, page, seen
from tests.unit.runtime.daemons import ABOUT


async def test_the_page_says_what_the_node_is(tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url):
        code, html, headers = await get(url)
        assert code == 200
        shown = await seen(url)
        for part in ("<h1>a</h1>", "finished", "3 of 3", "zerodfl", "Training loss", "<polyline"):
            assert part in shown
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        # Nothing is fetched from elsewhere, and nothing runs that is not a file of this node.
        assert not re.search(r'(src|href)="(https?:)?//', html + shown)
        assert "<style" not in html + shown
        assert "<script" not in shown
        assert not re.search(r"<script(?! src=\"page.js\")", html)
        for name in ("page.css", "page.js", "icon.svg"):
            assert (await get(url + name))[0] == 200
        assert (await get(url + "nothing"))[0] == 404
        assert (await get(url + "page.html"))[0] == 404
        code, text, _ = await get(url + "metrics")
        assert code == 200
        assert "\nfednode_round 3.0\n" in text
        assert await get(url + "healthz") == (200, "finished\n", (await get(url + "healthz"))[2])
        assert service.now().round == 3


async def test_a_node_that_loads_has_a_page(tmp_path: Path) -> None:
    store = Store(tmp_path)
    service = NodeService(store, ABOUT)
    web = Web(service, Metrics().text, PageSettings())
    url = await web.listen("127.0.0.1:0")
    assert "loading" in await seen(url)
    assert (await get(url + "healthz"))[0] == 503
    await web.close()
    store.close()


async def test_what_changes_is_sent_as_it_changes(tmp_path: Path) -> None:
    async with (
        page(tmp_path) as (service, url),
        aiohttp.ClientSession() as session,
        session.get(url + "live") as stream,
    ):
        assert stream.headers["Content-Type"] == "application/x-ndjson"
        async with asyncio.timeout(180):
            first = json.loads(await stream.content.readline())
            assert set(first) == {*PARTS, "classes"}
            service.events.record(Record("peer.dead", "b is dead", "warning"))
            parts: dict[str, str] = {}
            while "events" not in parts:
                parts = json.loads((await stream.content.readline()).strip() or b"{}")
            assert "b is dead" in parts["events"]
            assert "mesh" not in parts, "only what changed is sent"


async def test_names_that_others_choose_are_text(tmp_path: Path) -> None:
    pictures = {HOSTILE: ()}
    async with page(tmp_path, pictures=pictures) as (service, url):
        service.events.record(Record("peer.dead", HOSTILE, "warning"))
        html = await seen(url)
        assert HOSTILE not in html
        assert html.count("&lt;img src=x onerror=&#34;alert(1)&#34;&gt;") == 3


async def test_what_peers_say_of_names_that_nobody_has_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    service = NodeService(store, ABOUT)
    made = Page(service, lambda _: False)
    rounds = iter(range(100))

    async def ask(names: Sequence[str]) -> dict[str, status_pb2.StatusReply]:
        start = 50 * next(rounds)
        ghosts = [status_pb2.Peer(name=f"ghost{start + number}") for number in range(50)]
        return {"b": status_pb2.StatusReply(peers=[*ghosts, status_pb2.Peer(name="a")])}

    service.ask = ask  # type: ignore[method-assign]
    now = status_pb2.StatusReply(name="a", peers=[status_pb2.Peer(name="b", state="alive")])
    for _ in range(3):
        made._asked_at = float("-inf")
        await made._ask(now)
    assert {name: one.sent for name, one in made._told.items()} == {"b": {"a": 0}}
    gone = status_pb2.StatusReply(name="a", peers=[status_pb2.Peer(name="c", state="alive")])
    made._asked_at = float("-inf")
    await made._ask(gone)
    assert made._told == {}
    store.close()


def test_messages_are_drawn_in_the_direction_in_which_they_went() -> None:
    now = status_pb2.StatusReply(name="a", life="running")
    peer = now.peers.add(name="b", state="dead")
    peer.traffic.messages_out, peer.traffic.messages_in = 7, 3
    (edge,) = Page._graph(cast("Page", SimpleNamespace(_told={})), now).edges
    assert edge.title == "a to b: 7 messages; b to a: 3"


def test_what_a_peer_says_that_it_sent_is_drawn_as_its_own() -> None:
    now = status_pb2.StatusReply(name="a", life="running")
    peer = now.peers.add(name="b", state="alive")
    peer.traffic.messages_out, peer.traffic.messages_in = 7, 3
    told = {"b": SimpleNamespace(sent={"a": 4})}
    graph = Page._graph(cast("Page", SimpleNamespace(_told=told)), now)
    assert [edge.title for edge in graph.edges] == ["a to b: 7 messages; b to a: 4"]
    assert graph.note == ""
