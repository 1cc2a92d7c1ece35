"""A small proxy for tests: HTTP CONNECT and SOCKS5, with or without a password."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

REASONS = {407: "Proxy Authentication Required", 403: "Forbidden", 502: "Bad Gateway"}


@dataclass
class AProxy:
    """A proxy that runs.

    asked: what it was asked to connect to. names: what it connects to for a host, so that it
    resolves names that this machine does not know. forbidden: hosts that it refuses.
    """

    user: str = ""
    password: str = ""
    names: dict[str, str] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    at: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            first = await reader.readexactly(1)
            await (self.socks(reader, writer) if first == b"\x05" else self.http(reader, writer))
        writer.close()
        self.tasks.discard(task)

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        host, _, port = head.split()[1].rpartition(":")
        told = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        code = 200
        if self.user and f"Basic {told}" not in head:
            code = 407
        elif host in self.forbidden:
            code = 403
        far = await self.far(host, int(port)) if code == 200 else None
        code = 502 if code == 200 and far is None else code
        writer.write(f"HTTP/1.1 {code} {REASONS.get(code, 'OK')}\r\n\r\n".encode())
        if far is not None:
            await carry((reader, writer), far)

    async def socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if self.user:
            if 2 not in methods:
                writer.write(b"\x05\xff")
                return
            writer.write(b"\x05\x02")
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            good = (user.decode(), password.decode()) == (self.user, self.password)
            writer.write(b"\x01\x00" if good else b"\x01\x01")
            if not good:
                return
        else:
            writer.write(b"\x05\x00")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        far = None if host in self.forbidden else await self.far(host, port)
        code = 2 if host in self.forbidden else 0 if far else 4
        writer.write(bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0]))
        if far is not None:
            await carry((reader, writer), far)

    async def far(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        self.asked.append(f"{host}:{port}")
        with contextlib.suppress(OSError):
            found = await asyncio.open_connection(self.names.get(host, host), port)
            self.writers.append(found[1])
            return found
        return None


async def carry(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy bytes both ways until either end closes."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    ways = [
        asyncio.ensure_future(copy(one[0], other[1])),
        asyncio.ensure_future(copy(other[0], one[1])),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        other[1].close()


@asynccontextmanager
async def proxying(**given: object) -> AsyncIterator[AProxy]:
    """Run a proxy on loopback."""
    made = AProxy(**given)  # type: ignore[arg-type]
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in tuple(made.tasks):
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        for writer in made.writers:
            writer.close()
