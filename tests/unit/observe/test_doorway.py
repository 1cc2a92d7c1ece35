"""The page's connections: slow and idle readers end, and keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from yarl import URL

from fednode.observe import doorway
from tests.unit.observe.pages import get, page


async def test_slow_headers_end_and_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorway, "CONNECTIONS_MAX", 4)
    async with page(tmp_path) as (_, url), AsyncExitStack() as held:
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
        monkeypatch.setattr(doorway, "REQUEST_MAX_S", 0.05)
        late, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
        held.callback(writer.close)
        async with asyncio.timeout(180):
            with contextlib.suppress(ConnectionResetError):
                assert await late.read() == b""
