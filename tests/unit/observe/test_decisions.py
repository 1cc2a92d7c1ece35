"""The page's part on shared settings: who sees it, who decides, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import aiohttp

from fednode.observe.decisions import PART
from fednode.observe.settings import Shown
from fednode.settings.output import PageSettings
from tests.unit.observe.pages import (
    DRAWN,
    HOSTILE,
    OPERATOR,
    READER,
    TOKEN,
    page,
    seen,
    streamed,
    without_header,
)
from tests.unit.observe.test_settings import PROPOSAL, SHOWN, Decider


async def post(url: str, word: str, digest: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{url}settings/{word}", data={"digest": digest}, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_the_operator_alone_sees_the_settings_and_decides(tmp_path: Path) -> None:
    decider = Decider()
    async with page(tmp_path, PageSettings(token=TOKEN)) as (service, url):
        service.deciding = decider
        html = await seen(url, OPERATOR)
        for text in ("Settings 2 are in force, signed by a", "rounds.max: 20 -&gt; 30", "accepted"):
            assert text in html
        assert 'data-decide="take"' not in html, "it is accepted already"
        assert html.count('data-decide="refuse"') == 1
        assert "Settings 2" in (await streamed(url, OPERATOR))[PART]
        assert "Settings that the sites share" not in await seen(url, READER)
        assert PART not in await streamed(url, READER)
        for headers in ({"Origin": url.rstrip("/")}, READER, *without_header(url)):
            for word in ("take", "refuse"):
                assert (await post(url, word, "c" * 32, **headers))[0] == 401, headers
        assert decider.asked == []
        assert await post(url, "take", "c" * 32, **OPERATOR) == (200, "taken\n")
        assert await post(url, "refuse", "c" * 32, **OPERATOR) == (200, "refused\n")
        assert (await post(url, "take", "wrong", **OPERATOR))[0] == 400
        assert (await post(url, "take", "", **OPERATOR))[0] == 400
        assert decider.asked == ["c" * 32, "c" * 32, "wrong"]
        service.deciding = None
        assert (await post(url, "take", "c" * 32, **OPERATOR))[0] == 503


async def test_texts_of_others_are_text(tmp_path: Path) -> None:
    decider = Decider()
    hostile = replace(PROPOSAL, signer=HOSTILE, changes=(HOSTILE,), fault=HOSTILE, decision="")
    shown = replace(SHOWN, proposals=(hostile,), others=(HOSTILE,))
    decider.shown = lambda: shown  # type: ignore[method-assign]
    async with page(tmp_path) as (service, url):
        service.deciding = decider
        html = await seen(url, OPERATOR)
        assert HOSTILE not in html
        assert html.count('data-decide="take"') == 1
        assert DRAWN not in html


async def test_a_mesh_without_documents_shows_nothing_of_them(tmp_path: Path) -> None:
    decider = Decider()
    decider.shown = lambda: Shown(number=0, digest="", signer="")  # type: ignore[method-assign]
    async with page(tmp_path) as (service, url):
        service.deciding = decider
        assert "Settings that the sites share" not in await seen(url, OPERATOR)
