"""The part of the page on newcomers: who sees it, who may use it, and what it prints."""

from __future__ import annotations

import logging
from pathlib import Path

import aiohttp
import pytest

from fednode.observe.admitting import Site
from fednode.observe.newcomers import PART
from fednode.settings.output import PageSettings
from tests.unit.observe.pages import (
    HOSTILE,
    LINK,
    OPERATOR,
    READER,
    TOKEN,
    Desk,
    get,
    page,
    seen,
    streamed,
    without_header,
)


async def post(url: str, word: str, form: dict[str, str], **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{url}newcomers/{word}", data=form, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_the_operator_alone_sees_who_waits_and_the_words(tmp_path: Path) -> None:
    settings = PageSettings(token=TOKEN)
    async with page(tmp_path, settings, admitting=Desk()) as (_, url):
        html = await seen(url, OPERATOR)
        for text in (
            "Invite a site",
            "clinic.example:7100",
            "a b c d e",
            "one two three",
            "k l m n o",
            "<dd>0 of 0 alive</dd>",
        ):
            assert text in html
        assert html.count('data-newcomer="admit"') == 1, "a key without words cannot be admitted"
        assert 'data-id="KEY-1"' in html
        assert "a b c d e" in (await streamed(url, OPERATOR))[PART]
        assert "to be admitted.</a>" in (await streamed(url, OPERATOR))["head"]
        assert 'href="#waiting-title"' not in (await streamed(url, READER))["head"]
        html = await seen(url, READER)
        for text in ("newcomer", "Invite a site", "clinic", "one two three", 'id="invit'):
            assert text not in html
        assert PART not in await streamed(url, READER)


async def test_a_node_that_admits_nobody_shows_and_takes_nothing_of_it(tmp_path: Path) -> None:
    shut = Desk()
    shut.open = False
    for folder, admitting in (("none", None), ("shut", shut)):
        async with page(tmp_path / folder, admitting=admitting) as (_, url):
            html = await seen(url, OPERATOR)
            assert "Invite a site" not in html
            assert "wait to be admitted" not in html
            assert (await streamed(url, OPERATOR))[PART].strip() == ""
            here = OPERATOR
            for word in ("invite", "admit", "refuse"):
                form = {"site": "lab", "id": "KEY-2"}
                assert (await post(url, word, form, **here))[0] == 404
    assert shut.asked == []


async def test_the_operator_invites_and_decides_and_the_link_is_in_one_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk()
    async with page(tmp_path, admitting=desk) as (service, url):
        here = OPERATOR
        code, html = await post(url, "invite", {"site": " lab ", "approve": "on"}, **here)
        assert code == 200
        assert html.count(LINK) == 1
        assert "style=" not in html, "the page's policy forbids it"
        assert "f g h i j" in html
        assert "waits for you to admit" in html
        code, text = await post(url, "invite", {"site": "LAB"}, **here)
        assert (code, text) == (400, f"SITE is 'LAB'; {HOSTILE}\n")
        assert (await post(url, "invite", {"site": "x" * 2000}, **here))[0] == 413
        clinic = {"site": desk.knocking[0].name, "id": "KEY-1"}
        assert (await post(url, "admit", clinic, **here))[0] == 200
        assert await post(url, "refuse", {"site": "lab", "id": "KEY-2"}, **here) == (
            200,
            "lab was answered\n",
        )
        assert desk.asked == [
            ("lab", True),
            ("LAB", False),
            (clinic["site"], "KEY-1", True),
            ("lab", "KEY-2", False),
        ]
        for shown in await seen(url, OPERATOR), (await get(url + "metrics"))[1]:
            assert LINK not in shown
        assert LINK not in str(service.events.kept)
        assert LINK not in caplog.text


async def test_nobody_else_invites_or_decides(tmp_path: Path) -> None:
    desk = Desk()
    async with page(tmp_path, PageSettings(token=TOKEN), admitting=desk) as (_, url):
        for headers in ({"Origin": url.rstrip("/")}, READER, *without_header(url)):
            for word in ("invite", "admit", "refuse"):
                got = await post(url, word, {"site": "lab", "id": "KEY-2"}, **headers)
                assert got[0] == 401, headers
                assert LINK not in got[1]
        assert (await get(url + "newcomers/invite", headers=OPERATOR))[0] == 405
    assert desk.asked == []


async def test_names_of_newcomers_are_text(tmp_path: Path) -> None:
    desk = Desk()
    desk.knocking = [Site(HOSTILE, HOSTILE, HOSTILE, HOSTILE)]
    async with page(tmp_path, admitting=desk) as (_, url):
        html = await seen(url, OPERATOR)
        assert HOSTILE not in html
        assert html.count("&lt;img src=x") == 10
