"""The sites that want to be members: who sees them on the page, and who may invite and admit."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

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
    post,
    read,
    seen,
)


async def test_the_operator_alone_sees_who_waits_and_the_words(tmp_path: Path) -> None:
    desk = Desk()
    async with page(tmp_path, PageSettings(token=TOKEN), admitting=desk) as (_, url):
        for headers in (OPERATOR, READER):
            admits = (await read(url, "status", headers))["admits"]
            assert admits == (headers is OPERATOR)
        assert await read(url, "sites", OPERATOR) == await desk.sites()
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
                assert (await post(url, f"sites/{word}", form, **OPERATOR))[0] == 404
    assert shut.asked == []


async def test_the_operator_invites_and_decides_and_the_link_is_in_one_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk()
    async with page(tmp_path, admitting=desk) as (service, url):
        here = OPERATOR
        code, text = await post(url, "sites/invite", {"site": " lab ", "approve": "on"}, **here)
        assert code == 200
        assert json.loads(text) == await desk.invite("lab", approve=True)
        code, text = await post(url, "sites/invite", {"site": "LAB"}, **here)
        assert (code, text) == (400, f"SITE is 'LAB'; {HOSTILE}\n")
        assert (await post(url, "sites/invite", {"site": "x" * 2000}, **here))[0] == 413
        clinic = {"site": desk.waiting[0]["name"], "id": "KEY-1"}
        assert (await post(url, "sites/admit", clinic, **here))[0] == 200
        assert await post(url, "sites/refuse", {"site": "lab", "id": "KEY-2"}, **here) == (
            200,
            "lab was answered\n",
        )
        assert desk.asked == [
            *[("lab", True)] * 2,
            ("LAB", False),
            (clinic["site"], "KEY-1", True),
            ("lab", "KEY-2", False),
        ]
        for path in ("sites", "metrics"):
            assert LINK not in (await get(url + path, headers=OPERATOR))[1]
        assert LINK not in await seen(url, OPERATOR)
        assert LINK not in str(service.events.kept)
        assert LINK not in caplog.text
