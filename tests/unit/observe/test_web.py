"""The page over real HTTP: who may read and command, how long, and who sees and admits sites."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from fednode.errors import AddressError, ConfigError
from fednode.observe import web as module
from fednode.observe.metrics import Metrics
from fednode.observe.status import NodeService
from fednode.observe.web import Web
from fednode.settings.output import PageSettings
from tests.unit.observe.pages import (
    DOCUMENTS,
    DRAWN,
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
    without_header,
)


async def raw(url: str, said: bytes) -> bytes:
    """Send bytes that no client of HTTP would; return the first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
    writer.write(said)
    async with asyncio.timeout(180):
        line = await reader.readline()
    writer.close()
    return line.strip()


async def test_a_reader_that_does_not_take_its_answer_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unread(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "REQUEST_MAX_S", 0.1)
    monkeypatch.setattr(aiohttp.web.Response, "write_eof", unread)
    async with page(tmp_path) as (_, url), asyncio.timeout(180):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await get(url + "status")


async def until(service: NodeService, life: str) -> None:
    """Wait until a record comes after which the node is in a state of its life."""
    async with asyncio.timeout(180):
        async for _ in service.events.follow(0, "info"):
            if service.now().life == life:
                return


async def test_the_operator_pauses_and_resumes_from_the_page(tmp_path: Path) -> None:
    async with page(tmp_path, peers=["b"]) as (service, url):
        said = await post(url, "command/pause", **OPERATOR)
        assert said == (200, "a was asked to pause\n")
        await until(service, "paused")
        assert (await post(url, "command/resume", **OPERATOR))[0] == 200
        await until(service, "waiting")


COMMANDS = ("command/pause", "sites/invite", "sites/admit", "sites/refuse")


async def test_nobody_else_commands_the_node_from_a_page(tmp_path: Path) -> None:
    """No token, a token in a cookie or an address, a name that was bound anew, a reader's token."""
    desk, form = Desk(), {"site": "lab", "id": "KEY-2"}
    async with page(tmp_path, admitting=desk) as (service, url):
        here = url.rstrip("/")
        refused = [
            (401, {"Origin": here}),
            (401, {"Origin": here, "Authorization": "Bearer " + DRAWN[:-1]}),
            *((401, headers) for headers in without_header(url)),
            (403, {**OPERATOR, "Host": "evil.example", "Origin": "http://evil.example"}),
        ]
        for path in COMMANDS:
            for code, headers in refused:
                got = await post(url, path, form, **headers)
                assert (got[0], LINK in got[1]) == (code, False), (path, headers)
            assert (await post(url, f"{path}?token={DRAWN}", form, Origin=here))[0] == 401
            assert (await get(url + path, headers=OPERATOR))[0] == 405
        # A browser asks first whether a page of another origin may show a token; it may not.
        async with (
            aiohttp.ClientSession() as session,
            session.options(f"{url}command/pause", headers={"Origin": "http://evil.example"}) as no,
        ):
            assert no.status == 405
            assert not [name for name in no.headers if name.startswith("Access-Control")]
        for unknown in ("leave", "retune", "revoke", "pause/"):
            assert (await post(url, f"command/{unknown}", **OPERATOR))[0] == 404
        assert service.now().life == "finished"
    async with page(tmp_path / "none", drawn="") as (_, url):
        assert (await post(url, "command/pause", Authorization="Bearer "))[0] == 401
    async with page(tmp_path / "closed", PageSettings(token=TOKEN), admitting=desk) as (
        service,
        url,
    ):
        for path in COMMANDS:
            assert (await post(url, path, form))[0] == 401
            code, text = await post(url, path, form, **READER)
            assert (code, "fednode status" in text) == (401, True)
        assert (await read(url, "status", READER))["reader"] == "member"
        assert service.now().life == "finished"
        assert (await post(url, "command/pause", **OPERATOR))[0] == 200
        # A proxy with TLS: the name and port that the browser asked for, and another scheme.
        proxied = {"Host": "clinic.example", "Origin": "https://clinic.example"}
        assert (await post(url, "command/resume", **proxied, **OPERATOR))[0] == 200
    assert desk.asked == []


async def test_no_answer_sets_a_cookie_or_tells_a_token(tmp_path: Path) -> None:
    for settings in (PageSettings(), PageSettings(token=TOKEN)):
        async with page(tmp_path / str(settings.token), settings) as (_, url):
            for path in ("", f"?token={DRAWN}", f"metrics?token={DRAWN}", "page.js"):
                for headers in ({}, OPERATOR):
                    _, text, answered = await get(url + path, headers=headers)
                    assert not {"Set-Cookie", "Location"} & set(answered)
                    assert DRAWN not in text + str(answered)
            assert DRAWN not in await seen(url, OPERATOR)


async def test_a_token_is_asked_for_everywhere(tmp_path: Path) -> None:
    async with page(tmp_path, PageSettings(token=TOKEN)) as (_, url):
        secret = ("metrics", *DOCUMENTS, "sites", "command/pause", "nothing")
        wrong = {"Authorization": "Bearer " + TOKEN[:-1]}
        for headers in ({}, wrong, {"Cookie": f"token={TOKEN}"}):
            for path in secret:
                assert (await get(url + path, headers=headers))[0] == 401
                assert (await get(f"{url}{path}?token={TOKEN}", headers=headers))[0] == 401
            # The empty document, which is the same for every node.
            for path in ("", "page.css", "page.js", "icon.svg"):
                code, text, _ = await get(url + path, headers=headers)
                assert code == 200
                assert TOKEN not in text
            assert (await get(url + "healthz"))[:2] == (200, "finished\n")  # for containers
        assert (await get(url + "metrics", headers=READER))[0] == 200
        assert (await read(url, "status", READER))["status"]["name"] == "a"
        # A token that is none is no fault of the node.
        said = b"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n"
        assert await raw(url, said) == b"HTTP/1.1 401 Unauthorized"
        # With a token any name may lead here, such as that of a proxy.
        assert (await get(url + "metrics", headers={**READER, "Host": "clinic.example"}))[0] == 200


async def test_without_a_token_only_this_machine_reads(tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url):
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
            assert (await get(url, headers={"Host": host}))[0] == 403
        assert (await get(url, headers={"Host": "localhost"}))[0] == 200
        with pytest.raises(ConfigError, match=r"page\.token is not set"):
            await Web(service, Metrics().text, PageSettings()).listen("0.0.0.0:0")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(AddressError, match="in use"):
                await Web(service, Metrics().text, PageSettings()).listen(f"127.0.0.1:{port}")
    with pytest.raises(ValueError, match="at least 16 characters"):
        PageSettings(token="short")


async def test_slow_headers_end_and_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 4)
    async with page(tmp_path) as (_, url), contextlib.AsyncExitStack() as held:
        slow = []
        for number in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
            held.callback(writer.close)
            writer.write(b"GET /status HTTP/1.1\r\nHost: lo")
            if number % 2:  # a whole request, and then nothing more
                writer.write(b"calhost\r\n\r\n")
                assert b"200" in await reader.readline()
            slow.append(reader)
        assert (await get(url))[0] == 200
        async with asyncio.timeout(180):
            for reader in slow[:3]:  # those that waited longest made room
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
        monkeypatch.setattr(module, "REQUEST_MAX_S", 0.05)
        late, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
        held.callback(writer.close)
        async with asyncio.timeout(180):
            with contextlib.suppress(ConnectionResetError):
                assert await late.read() == b""


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
