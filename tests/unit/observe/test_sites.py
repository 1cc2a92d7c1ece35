"""The sites that want to be members: who sees them on the page, and who may invite and admit."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

import aiohttp
import pytest

from fednode.observe.admitting import Invitation
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
    read,
    seen,
    without_header,
)


async def post(url: str, word: str, form: dict[str, str], **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{url}sites/{word}", data=form, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_the_operator_alone_sees_who_waits_and_the_words(tmp_path: Path) -> None:
    desk = Desk()
    async with page(tmp_path, PageSettings(token=TOKEN), admitting=desk) as (_, url):
        for headers in (OPERATOR, READER):
            admits = (await read(url, "status", headers))["admits"]
            assert admits == (headers is OPERATOR)
        assert await read(url, "sites", OPERATOR) == {
            "waiting": [asdict(site) for site in desk.knocking],
            "members": [asdict(site) for site in await desk.members()],
            "mesh_words": "k l m n o",
        }
        code, text, _ = await get(url + "sites", headers=READER)
        assert (code, "clinic" in text) == (401, False)
        assert "clinic" not in await seen(url, READER)


async def test_a_node_that_admits_nobody_shows_and_takes_nothing_of_it(tmp_path: Path) -> None:
    shut = Desk()
    shut.open = False
    for folder, admitting in (("none", None), ("shut", shut)):
        async with page(tmp_path / folder, admitting=admitting) as (_, url):
            assert not (await read(url, "status", OPERATOR))["admits"]
            assert (await get(url + "sites", headers=OPERATOR))[0] == 404
            for word in ("invite", "admit", "refuse"):
                form = {"site": "lab", "id": "KEY-2"}
                assert (await post(url, word, form, **OPERATOR))[0] == 404
    assert shut.asked == []


async def test_the_operator_invites_and_decides_and_the_link_is_in_one_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk()
    async with page(tmp_path, admitting=desk) as (service, url):
        here = OPERATOR
        code, text = await post(url, "invite", {"site": " lab ", "approve": "on"}, **here)
        assert code == 200
        assert json.loads(text) == asdict(Invitation("lab", LINK, "f g h i j", 7, True))
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
        for path in ("sites", "metrics"):
            assert LINK not in (await get(url + path, headers=OPERATOR))[1]
        assert LINK not in await seen(url, OPERATOR)
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
        assert (await get(url + "sites/invite", headers=OPERATOR))[0] == 405
    assert desk.asked == []
