"""The page in a real headless Chromium: what a reader sees, what leaves the node, what axe says."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import async_playwright, expect

from fednode.core.events import Record
from fednode.observe.status import NodeService
from fednode.settings.output import PageSettings
from fednode.wire.gen import status_pb2
from tests.unit.observe.pages import DRAWN, HOSTILE, LINK, TOKEN, Desk, page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine"),
]
WIDTHS = (1280, 390)
CUT = """
[...document.querySelectorAll("tbody th, td[data-name], p, li, dd, h1, svg text")].filter((one) => {
  const box = one.getBoundingClientRect();
  const room = (one.closest("svg") ?? document.documentElement).getBoundingClientRect();
  return box.width && (box.left < room.left - 1 || box.right > room.right + 1);
}).map((one) => one.outerHTML)
"""
"""Elements whose text is cut at the left or the right."""


OFFLINE = "1 of 3 peers is offline: d (last heard 80 s ago; nobody answers at d.clinic:7443)"


@dataclass
class Seen:
    """What a browser asked for, and what went wrong in it."""

    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


Open = Callable[..., AbstractAsyncContextManager[tuple[Any, Seen]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Open]:
    """Start Chromium; yield what opens a tab of a new profile, which notes what it asks for."""

    @asynccontextmanager
    async def opened(**context: Any) -> AsyncIterator[tuple[Any, Seen]]:
        seen = Seen()
        profile = await chromium.new_context(**context)
        tab = await profile.new_page()
        tab.on("request", lambda request: seen.asked.append(request.url))
        tab.on("pageerror", lambda fault: seen.faults.append(str(fault)))
        tab.on("dialog", lambda dialog: seen.faults.append(f"dialog {dialog.message}"))
        tab.on(
            "console",
            lambda said: seen.faults.append(said.text) if said.type == "error" else None,
        )
        try:
            yield tab, seen
        finally:
            await profile.close()

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        await chromium.close()


def add(service: NodeService, more: status_pb2.StatusReply) -> None:
    """Add something to a node's status."""
    alone = service.now

    def now(member: bool = False) -> status_pb2.StatusReply:
        reply = alone(member)
        reply.MergeFrom(more)
        return reply

    service.now = now  # type: ignore[method-assign]


def meshed(service: NodeService) -> None:
    """Put peers in several states around a node; two of them answer the page's questions."""
    traffic = status_pb2.Traffic(messages_out=30, serialized_out=4_000_000, serialized_in=3_000_000)
    states = {"b-at-a-clinic-with-a-long-name": "alive", "c": "suspect", "d": "dead"}
    reasons = {"d": "nobody answers at d.a-long-name-of-a-host.clinic.example:7443"}
    peers = [
        status_pb2.Peer(
            name=name,
            address=f"{name}.clinic.example:7443",
            state=state,
            round=3,
            heard_s=80,
            reason=reasons.get(name, ""),
            traffic=traffic,
        )
        for name, state in states.items()
    ]

    async def ask(names: Sequence[str]) -> dict[str, status_pb2.StatusReply]:
        measured = {"own": 0.875, "zero_shot_own": 0.5}
        said = status_pb2.StatusReply(life="running", phase="tuning", measured=measured)
        said.peers.add(name="d", state="dead")
        return dict.fromkeys(names[:2], said)

    service.ask = ask  # type: ignore[method-assign]
    add(service, status_pb2.StatusReply(peers=peers, warnings=[OFFLINE], classes=["lemon"]))


async def test_it_is_live_asks_nobody_else_and_shows_hostile_names_as_text(
    browser: Open, tmp_path: Path
) -> None:
    async with page(tmp_path) as (service, url), browser() as (tab, seen):
        add(service, status_pb2.StatusReply(classes=[HOSTILE]))
        await tab.goto(f"{url}#token={DRAWN}")
        await expect(tab.locator("h1")).to_have_text("a")
        await expect(tab.get_by_text(HOSTILE).first).to_be_visible()
        told = f"something {HOSTILE} happened"
        service.events.record(Record("peer.dead", told, "warning", {"peer": "b"}))
        await expect(tab.get_by_text(told).first).to_be_visible()  # nobody reloaded it
        assert await tab.locator("img[src=x]").count() == 0
        assert [one for one in seen.asked if not one.startswith(url)] == []
        assert any("status" in one for one in seen.asked)
        assert seen.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_everyone_can_read_it(browser: Open, scheme: Any, width: int, tmp_path: Path) -> None:
    size = {"width": width, "height": 900}
    async with (
        page(tmp_path) as (service, url),
        # axe itself is put into the page, which the page's own policy forbids.
        browser(viewport=size, color_scheme=scheme, bypass_csp=True) as (tab, _),
    ):
        meshed(service)
        await tab.goto(f"{url}#token={DRAWN}")
        await expect(tab.get_by_text(OFFLINE)).to_have_count(1)
        await expect(tab.get_by_text("own 87.5 %").first).to_be_visible()
        await expect(tab).to_have_title("a: d is offline · fednode")
        found = await Axe().run(tab)
        assert [one["id"] for one in found.response["violations"]] == []
        wide = await tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        assert await tab.evaluate(CUT) == []
        red, green, blue = await tab.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        assert (red + green + blue > 380) == (scheme == "light")
        picture = await tab.screenshot(full_page=True, path=tmp_path / "page.png")
        assert len(picture) > 10_000


async def test_values_are_shown_under_the_pointer(browser: Open, tmp_path: Path) -> None:
    async with page(tmp_path) as (_, url), browser() as (tab, _):
        await tab.goto(url)
        loss = tab.get_by_label("Training loss", exact=True)
        await loss.locator("svg").hover()
        await expect(loss.get_by_text("round 2: loss")).to_be_visible()
        await tab.locator("h1").hover()
        await expect(loss.get_by_text("round 2: loss")).to_have_count(0)


async def test_warnings_can_be_read_alone(browser: Open, tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url), browser() as (tab, _):
        service.events.record(Record("peer.dead", "b is dead", "warning", {"peer": "b"}))
        await tab.goto(url)
        ordinary = tab.locator("#events li.info")
        await expect(ordinary.first).to_be_visible()
        await tab.get_by_label("Warnings and errors only").press("Space")
        await expect(tab.locator("#events li")).to_have_text([re.compile("b is dead")])


async def test_the_operator_is_told_how_to_remove_a_peer(browser: Open, tmp_path: Path) -> None:
    async with page(tmp_path, peers=("b",)) as (_, url), browser() as (tab, _):
        await tab.goto(url)
        await expect(tab.get_by_role("row", name="b")).to_be_visible()
        assert await tab.get_by_role("button").count() == 0
        await tab.goto(f"{url}#token={DRAWN}")
        await tab.get_by_role("button", name="Remove b").press("Enter")
        await expect(tab.get_by_text("run fednode remove b where the mesh key is")).to_be_visible()


async def test_the_charts_begin_again_with_the_rounds(browser: Open, tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url), browser() as (tab, seen):
        await tab.goto(url)
        loss = tab.get_by_label("Training loss", exact=True)
        await expect(loss.locator("circle")).to_have_count(3)
        before, stored = service.now, service.history

        def now(member: bool = False) -> status_pb2.StatusReply:
            reply = before(member)
            reply.round = 1
            return reply

        async def history(since: int, limit: int = 0) -> status_pb2.HistoryReply:
            reply = await stored(since)
            del reply.rounds[1:]
            return reply

        service.now, service.history = now, history  # type: ignore[method-assign]
        await expect(loss.locator("circle")).to_have_count(1)
        assert seen.faults == []


async def test_the_bytes_sent_never_fall_after_a_restart(browser: Open, tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url), browser() as (tab, seen):

        async def history(since: int, limit: int = 0) -> status_pb2.HistoryReply:
            sent = (1000, 2000, 300)  # the node was started again before its third round
            rounds = [
                status_pb2.Round(round=number, traffic=status_pb2.Traffic(serialized_out=count))
                for number, count in enumerate(sent, 1)
            ]
            return status_pb2.HistoryReply(rounds=rounds)

        service.history = history  # type: ignore[method-assign]
        await tab.goto(url)
        await expect(tab.get_by_label("Bytes sent", exact=True)).to_contain_text("2.3 kB")
        assert seen.faults == []


async def test_the_operator_pauses_and_resumes_it(browser: Open, tmp_path: Path) -> None:
    waiting = page(tmp_path, peers=("b",))
    async with waiting as (service, url), browser() as (tab, seen):
        await tab.goto(url)
        await expect(tab.locator("h1")).to_be_visible()
        assert await tab.get_by_role("button").count() == 0
        await tab.goto(f"{url}#token={DRAWN}")
        await tab.get_by_role("button", name="Pause this node").press("Enter")
        await expect(tab.get_by_text("a was asked to pause")).to_be_visible()
        resume = tab.get_by_role("button", name="Resume this node")
        await expect(resume).to_be_focused()
        assert service.now().life == "paused"
        await resume.click()
        await expect(tab.get_by_role("button", name="Pause this node")).to_be_visible()
        assert seen.faults == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_the_operator_invites_and_admits(
    browser: Open, width: int, scheme: Any, tmp_path: Path
) -> None:
    size, desk = {"width": width, "height": 900}, Desk()
    async with (
        page(tmp_path, admitting=desk) as (_, url),
        browser(viewport=size, color_scheme=scheme, bypass_csp=True) as (tab, seen),
    ):
        await tab.goto(f"{url}#token={DRAWN}")
        name = tab.get_by_label("Name of the site")
        await name.fill("lab-2")
        await tab.get_by_label("Ask me before").check()
        await name.press("Enter")
        await expect(tab.get_by_text(LINK)).to_be_visible()
        await expect(tab.get_by_role("heading", name="The link for lab-2")).to_be_focused()
        found = await Axe().run(tab)
        assert [one["id"] for one in found.response["violations"]] == []
        assert await tab.evaluate("document.documentElement.scrollWidth") <= width
        assert await tab.evaluate(CUT) == []
        assert seen.faults == []
        await tab.screenshot(full_page=True, path=tmp_path / "page.png")
        await tab.get_by_role("button", name="Admit clinic").press("Enter")
        await expect(tab.get_by_text("was answered")).to_be_visible()
        waiting = tab.get_by_role("heading", name="Sites that wait to be admitted")
        await expect(waiting).to_be_focused()
        assert desk.asked == [
            ("lab-2", True),
            ("clinic-with-a-long-name-in-the-north", "KEY-1", True),
        ]
        await name.fill("LAB")
        await name.press("Enter")
        await expect(tab.get_by_text("SITE is 'LAB'")).to_be_visible()
        assert await tab.locator("img[src=x]").count() == 0


async def test_the_page_s_own_policy_lets_a_link_be_made(browser: Open, tmp_path: Path) -> None:
    async with page(tmp_path, admitting=Desk()) as (_, url), browser() as (tab, seen):
        await tab.goto(f"{url}#token={DRAWN}")
        await tab.get_by_label("Name of the site").fill("lab-2")
        await tab.get_by_role("button", name="Make a link").click()
        await expect(tab.get_by_text(LINK)).to_be_visible()
        assert seen.faults == []
        assert tab.url == url


async def test_the_link_opens_it_for_one_tab_and_stays_in_no_address(
    browser: Open, tmp_path: Path
) -> None:
    closed = page(tmp_path, PageSettings(token=TOKEN), peers=("b",))
    async with closed as (_, url), browser() as (tab, seen):
        await tab.goto(url)
        await expect(tab.get_by_text("a token is needed")).to_be_visible()
        await tab.goto(f"{url}#token={TOKEN}")  # the same document, so the browser loads nothing
        await expect(tab.locator("h1")).to_have_text("a")
        assert tab.url == url
        await tab.reload()
        await expect(tab.locator("h1")).to_have_text("a")
        assert await tab.get_by_role("button").count() == 0
        await tab.goto(f"{url}#token={DRAWN}")
        await expect(tab.get_by_role("button").first).to_be_visible()
        await tab.goto(f"{url}#token=wrong")
        await expect(tab.get_by_text("a token is needed")).to_be_visible()
        assert not [one for one in seen.asked if "token" in one.partition("#")[0]]


@asynccontextmanager
async def thief() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve as another user of this machine on a port of its own; yield all that it receives."""
    got: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        got.append(f"{request.raw_headers!r} {request.path_qs} {await request.text()}")
        html = "<h1>hello</h1><script>stored = JSON.stringify({...sessionStorage})</script>"
        return web.Response(text=html, content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", got
    finally:
        await runner.cleanup()


SEND = """async (url) => {
  const ways = [
    { credentials: "include" },
    { credentials: "include", mode: "no-cors" },
    { headers: { Authorization: "Bearer guess" }, credentials: "include" },
  ];
  const tried = ways.map((way) => fetch(`${url}command/pause`, { method: "POST", ...way }));
  const done = await Promise.allSettled(tried);
  const form = document.createElement("form");
  Object.assign(form, { method: "POST", action: `${url}command/pause`, target: "frame" });
  const frame = Object.assign(document.createElement("iframe"), { name: "frame" });
  const loaded = new Promise((done) => { frame.onload = frame.onerror = done; });
  document.body.append(frame, form);
  form.submit();
  await loaded;
  return done.map((one) => one.value?.status ?? "refused");
}"""


async def test_a_server_on_another_port_gets_no_token_and_commands_nothing(
    browser: Open,
    tmp_path: Path,
) -> None:
    async with (
        page(tmp_path, peers=("b",), admitting=Desk()) as (node, url),
        thief() as (other, got),
        browser() as (tab, seen),
    ):
        await tab.goto(f"{url}#token={DRAWN}")
        await tab.get_by_label("Name of the site").fill("lab-2")
        await tab.get_by_role("button", name="Make a link").click()
        await expect(tab.get_by_text(LINK)).to_be_visible()
        assert await tab.context.cookies() == []
        assert DRAWN not in await tab.content()
        assert seen.faults == []
        await tab.goto(other)  # from the page, in its own tab
        assert await tab.evaluate("stored") == "{}"
        assert await tab.evaluate(SEND, url) == ["refused", 0, "refused"]
        link = f"<a href='{other}from-the-page'>there</a>"
        await tab.goto(url)
        await expect(tab.get_by_role("button", name="Pause this node")).to_be_visible()
        await tab.evaluate("(html) => { document.querySelector('main').innerHTML = html }", link)
        await tab.get_by_text("there").click()
        await expect(tab.locator("h1")).to_have_text("hello")
        assert any("from-the-page" in one for one in got)
        assert not [one for one in got if DRAWN in one or "Cookie" in one or url in one]
        assert node.now().life == "waiting", "nobody else paused it"
