"""Attacks that take their time: silent connections to an introducer, slow headers at a page."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from yarl import URL

from bootstrap.enrol import enrol
from bootstrap.introducer import Book, serve
from node.identity.identity import Identity
from node.runtime.doorway import CONNECTIONS_MAX, REQUEST_MAX_S
from node.transports.tls import VISITORS_MAX
from tests.e2e.attacks.live import LIMIT_S
from tests.unit.bootstrap.test_introducer import knock
from tests.unit.identity.people import MESH
from tests.unit.runtime.test_web import get, page

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MORE = 40


async def test_silent_connections_to_an_introducer_keep_nobody_out(tmp_path: Path) -> None:
    book = Book(tmp_path / "book", MESH)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(book, "127.0.0.1:0", stop, ready.set_result))
    at = await ready
    silent = []
    for _ in range(VISITORS_MAX + MORE):
        with contextlib.suppress(OSError, ssl.SSLError):
            silent.append(await knock(at))
    one = Identity(tmp_path / "n1", MESH, "n1")
    async with asyncio.timeout(LIMIT_S):
        await enrol(one, book.mesh_key, at, "127.0.0.1:1", book.token())
        assert one.lease is not None
        stop.set()
        await task
    for _, writer in silent:
        writer.close()


async def test_slow_headers_keep_no_reader_out_and_end(tmp_path: Path) -> None:
    async with page(tmp_path) as (_, url), contextlib.AsyncExitStack() as held:
        slow = []
        for _ in range(CONNECTIONS_MAX + MORE):
            reader, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
            held.callback(writer.close)
            writer.write(b"GET / HTTP/1.1\r\n")
            slow.append(reader)
        assert (await get(url))[0] == 200
        async with asyncio.timeout(REQUEST_MAX_S + LIMIT_S):
            for reader in slow:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
