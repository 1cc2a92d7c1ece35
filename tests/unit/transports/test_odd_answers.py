"""A member, or a relay, that answers each call with bytes that stand for nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fednode.enrolment import client as enrolment
from fednode.errors import FrameError, Unreachable
from fednode.identity.identity import NodeIdentity
from fednode.observe.client import Client, ask
from fednode.transports.address import RelayEntry
from tests.meshes import Mesh

GUARD_S = 180.0


class Answers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers each method; `taken` is set by each call."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()

    def service(self, details: Any) -> Any:
        async def answer(requests: Any, context: Any) -> AsyncIterator[bytes]:
            self.taken.set()
            yield b"\xff\xff"

        return grpc.stream_stream_rpc_method_handler(answer)


@contextlib.asynccontextmanager
async def odd(mesh: Mesh, name: str) -> AsyncIterator[tuple[str, Answers]]:
    """Run a server with the certificate of a name; yield its address."""
    shown, answers = mesh.credential(name), Answers()
    server = grpc.aio.server(handlers=[answers])
    trusted = grpc.ssl_server_credentials(
        [(shown.key, shown.chain)], mesh.roster().anchors, require_client_auth=True
    )
    port = server.add_secure_port("127.0.0.1:0", trusted)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", answers
    finally:
        await server.stop(0)


async def echo(frame: bytes, caller: str) -> bytes:
    return frame


@pytest.mark.parametrize("size", [1, 2 << 20])
async def test_an_answer_to_a_message(mesh: Mesh, size: int) -> None:
    async with odd(mesh, "evil") as (there, _):
        with pytest.raises(FrameError, match=r"the answer of .* is no frame"):
            await mesh.transport("a").send(there, bytes(size), GUARD_S, "evil")


async def test_an_answer_to_a_command_and_to_a_renewal(mesh: Mesh, tmp_path: Path) -> None:
    identity = NodeIdentity.create(tmp_path)
    async with odd(mesh, "evil") as (there, _):
        async with Client(transport=mesh.transport("a")) as client:
            asked = (
                lambda: client.status(there),
                lambda: client.peers(there),
                lambda: client.settings(there),
                lambda: client.history(there),
                lambda: client.control(there, "pause"),
                lambda: anext(client.watch(there)),
            )
            for call in asked:
                with pytest.raises(Unreachable, match="answer cannot be read"):
                    await call()
        a = mesh.transport("a")
        assert await ask(a.channel, {"evil": there}, ["evil"]) == {}
        with pytest.raises(Unreachable, match="The answer of evil cannot be read"):
            await enrolment.renew(a, [("evil", there)], identity, mesh.roster())


async def test_a_ticket_of_a_relay(mesh: Mesh) -> None:
    async with odd(mesh, "relay") as (there, answers):
        a = mesh.transport("a", RelayEntry("relay", there))
        await a.listen("relay", echo)
        assert a.relay is not None
        async with asyncio.timeout(GUARD_S):
            for _ in range(2):  # it waits there again
                answers.taken.clear()
                await answers.taken.wait()
        assert "what is no ticket" in a.relay.trouble
        await a.close()
