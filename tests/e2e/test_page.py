"""The page in a real headless Chromium: what a reader sees, what leaves the node, what axe says."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
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


@dataclass
class Seen:
    """What a browser asked for, and what went wrong in it."""

    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@asynccontextmanager
async def browser(**context: Any) -> AsyncIterator[tuple[Any, Seen]]:
    """Open a tab; yield it, and what it asks for from now on."""
    seen = Seen()
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        tab = await (await chromium.new_context(**context)).new_page()
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
            await chromium.close()


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
    alone = service.now

    def now(member: bool = False) -> status_pb2.StatusReply:
        reply = alone(member)
        reply.MergeFrom(status_pb2.StatusReply(peers=peers))
        return reply

    async def ask(names: Sequence[str]) -> dict[str, status_pb2.StatusReply]:
        measured = {"own": 0.875, "zero_shot_own": 0.5}
        said = status_pb2.StatusReply(life="running", phase="tuning", measured=measured)
        said.peers.add(name="d", state="dead")
        return dict.fromkeys(names[:2], said)

    service.now, service.ask = now, ask  # type: ignore[method-assign]


async def test_it_is_live_asks_nobody_else_and_shows_hostile_names_as_text(tmp_path: Path) -> None:
    async with page(tmp_path, pictures={HOSTILE: ()}) as (service, url), browser() as (tab, seen):
        await tab.goto(url)
        await expect(tab.locator("h1")).to_have_text("a")
        await expect(tab.get_by_text(HOSTILE).first).to_be_visible()
        told = f"something {HOSTILE} happened"
        service.events.record(Record("peer.dead", told, "warning", {"peer": "b"}))
        await expect(tab.get_by_text(told).first).to_be_visible()  # nobody reloaded it
        assert await tab.locator("img[src=x]").count() == 0
        assert [one for one in seen.asked if not one.startswith(url)] == []
        assert any("live" in one for one in seen.asked)
        assert seen.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_everyone_can_read_it(scheme: Any, width: int, tmp_path: Path) -> None:
    size = {"width": width, "height": 900}
    async with (
        page(tmp_path, pictures={"lemon": ()}) as (service, url),
        # axe itself is put into the page, which the page's own policy forbids.
        browser(viewport=size, color_scheme=scheme, bypass_csp=True) as (tab, _),
    ):
        meshed(service)
        await tab.goto(f"{url}?token={DRAWN}")
        await expect(tab.get_by_text("2 of 3 peers can be reached")).to_be_visible()
        await expect(tab.get_by_text("own 87.5 %").first).to_be_visible()
        await expect(tab).to_have_title("a: d is dead · fednode")
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


async def test_values_are_shown_under_the_pointer(tmp_path: Path) -> None:
    async with page(tmp_path) as (_, url), browser() as (tab, _):
        await tab.goto(url)
        loss = tab.get_by_label("Training loss", exact=True)
        shown = loss.locator(".moment").nth(1).get_by_text("round 2", exact=True)
        await expect(shown).to_be_hidden()
        await loss.locator(".strip").nth(1).hover()
        await expect(shown).to_be_visible()
        await expect(loss.locator(".moment").nth(0).get_by_text("round 1")).to_be_hidden()


async def test_the_operator_pauses_and_resumes_it(tmp_path: Path) -> None:
    waiting = page(tmp_path, peers=("b",))
    async with waiting as (service, url), browser() as (tab, seen):
        await tab.goto(url)
        await expect(tab.locator("h1")).to_be_visible()
        assert await tab.get_by_role("button").count() == 0
        await tab.goto(f"{url}?token={DRAWN}")
        await tab.get_by_role("button", name="Pause this node").press("Enter")
        await expect(tab.get_by_text("a was asked to pause")).to_be_visible()
        resume = tab.get_by_role("button", name="Resume this node")
        await expect(resume).to_be_focused()
        assert service.now().life == "paused"
        await resume.click()
        await expect(tab.get_by_role("button", name="Pause this node")).to_be_visible()
        assert seen.faults == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_the_operator_invites_and_admits(width: int, scheme: Any, tmp_path: Path) -> None:
    size, desk = {"width": width, "height": 900}, Desk()
    async with (
        page(tmp_path, admitting=desk) as (_, url),
        browser(viewport=size, color_scheme=scheme, bypass_csp=True) as (tab, seen),
    ):
        await tab.goto(f"{url}?token={DRAWN}")
        name = tab.get_by_label("Name of the site")
        await name.fill("lab-2")
        await tab.get_by_label("Ask me before").check()
        await name.press("Enter")
        await expect(tab.get_by_text(LINK)).to_be_visible()
        await expect(tab.get_by_role("heading", name="The link for lab-2")).to_be_focused()
        picture = await tab.get_by_role(
            "img", name="The link for lab-2 as a QR code"
        ).bounding_box()
        assert picture["width"] > 200
        assert picture["height"] == pytest.approx(picture["width"], abs=2)
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


async def test_the_page_s_own_policy_lets_a_link_be_made(tmp_path: Path) -> None:
    async with page(tmp_path, admitting=Desk()) as (_, url), browser() as (tab, seen):
        await tab.goto(f"{url}?token={DRAWN}")
        await tab.get_by_label("Name of the site").fill("lab-2")
        await tab.get_by_role("button", name="Make a link").click()
        await expect(tab.get_by_text(LINK)).to_be_visible()
        assert seen.faults == []
        assert tab.url == url


async def test_a_token_opens_it_once_and_is_gone_from_the_address(tmp_path: Path) -> None:
    async with page(tmp_path, PageSettings(token=TOKEN)) as (_, url), browser() as (tab, _):
        refused = await tab.goto(url)
        assert refused.status == 401
        await tab.goto(f"{url}?token={TOKEN}")
        assert tab.url == url
        await expect(tab.locator("h1")).to_have_text("a")
        await tab.reload()
        await expect(tab.locator("h1")).to_have_text("a")
