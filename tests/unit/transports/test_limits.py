"""Calls of one key: bounded in number and time, and in nobody else's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from fednode.transports import limits
from fednode.transports.exchange import DELIVER, DELIVER_CHUNKS, wrapped
from fednode.transports.relay_service import DIAL
from tests.contract.transport_suite import GUARD_S, Stuck
from tests.meshes import Mesh
from tests.unit.identity.people import invitation_key
from tests.unit.transports.test_callers import TOKEN, guest_of

ANY = "127.0.0.1:0"
STREAM, DEFECT = "/test.Test/Stream", "/test.Test/Defect"


async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield b"one"
    await asyncio.Event().wait()


async def defect(request: bytes, context: Any) -> bytes:
    raise LookupError("a defect")


async def fine(request: bytes, context: Any) -> bytes:
    return b"fine"


def register(server: Any) -> None:
    handlers = {
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Defect": grpc.unary_unary_rpc_method_handler(defect),
    }
    add = server.add_generic_rpc_handlers
    add((grpc.method_handlers_generic_handler("test.Test", handlers),))
    for method in (DIAL, f"{limits.ENROLMENT}Enrol"):
        _, service, name = method.split("/")
        answer = {name: grpc.unary_unary_rpc_method_handler(fine)}
        add((grpc.method_handlers_generic_handler(service, answer),))


async def silent() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def end(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the status that a call ends with."""
    async with asyncio.timeout(GUARD_S):
        return await call.code(), await call.details()


Open = Callable[..., Any]


@pytest.fixture
async def opened(mesh: Mesh) -> AsyncIterator[tuple[Stuck, Open]]:
    """Give the handler of a node `v`, which is stuck, and what opens channels to the node."""
    stuck, server = Stuck(), mesh.transport("v")
    server.add_service(register)
    to = await server.listen(ANY, stuck)
    yield stuck, lambda name: mesh.channel(name, to, "v")
    stuck.free.set()


async def test_calls_of_a_key_are_bounded_and_others_are_not_in_its_way(
    opened: tuple[Stuck, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CALLS_PER_KEY", 1)
    stuck, channel = opened
    a, b = await channel("a"), await channel("b")
    first = a.unary_unary(DELIVER)(wrapped(b"x"))
    await stuck.taken.wait()
    code, text = await end(a.unary_unary(DELIVER)(wrapped(b"x")))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert text == "this key holds 1 calls already; end one of them first"
    other = b.unary_unary(DELIVER)(wrapped(b"x"))
    stuck.free.set()
    assert (await end(first))[0] is (await end(other))[0] is grpc.StatusCode.OK
    assert (await end(a.unary_unary(DELIVER)(wrapped(b"x"))))[0] is grpc.StatusCode.OK


async def test_streams_are_counted_apart_and_end_without_an_error(
    opened: tuple[Stuck, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAMS_PER_KEY", 1)
    monkeypatch.setattr(limits, "CALLS_PER_KEY", 1)
    stuck, channel = opened
    a = await channel("a")
    held = a.unary_stream(STREAM)(b"")
    assert await held.read() == b"one"
    assert (await end(a.unary_stream(STREAM)(b"")))[1].startswith("this key holds 1 streams")
    stuck.free.set()
    assert (await end(a.unary_unary(DELIVER)(wrapped(b"x"))))[0] is grpc.StatusCode.OK
    held.cancel()


async def test_a_stream_of_answers_ends_after_its_time(
    opened: tuple[Stuck, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_MAX_S", 0.0)
    channel = await opened[1]("a")
    assert (await end(channel.unary_stream(STREAM)(b"")))[0] is grpc.StatusCode.OK


async def test_a_request_that_does_not_arrive_ends_its_call(
    opened: tuple[Stuck, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_MAX_S", 0.0)
    channel = await opened[1]("a")
    code, text = await end(channel.stream_unary(DELIVER)(silent()))
    assert (code, text) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the request came too slowly")


async def test_a_defect_ends_the_call_and_tells_the_caller_nothing(
    opened: tuple[Stuck, Open],
) -> None:
    channel = await opened[1]("a")
    assert await end(channel.unary_unary(DEFECT)(b"")) == (
        grpc.StatusCode.INTERNAL,
        limits.FAILED,
    )


@pytest.mark.parametrize("method", ["/test.Test/Other", "/no.Such/Method"])
async def test_an_unknown_method_is_counted_as_a_call(
    opened: tuple[Stuck, Open], method: str
) -> None:
    channel = await opened[1]("a")
    code, _ = await end(channel.unary_unary(method)(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("by", ["", "n1"])
@pytest.mark.parametrize("method", [DELIVER, DELIVER_CHUNKS, DIAL, f"{limits.ENROLMENT}Enrol"])
async def test_a_guest_may_enrol_or_dial_who_invited_it_and_nothing_else(
    mesh: Mesh, by: str, method: str
) -> None:
    roster = mesh.roster()
    roster.set_invitations({invitation_key(TOKEN): "site"}, by=by)
    server = mesh.transport("v", roster=roster)
    server.add_service(register)
    to = await server.listen(ANY, Stuck())
    channel = await mesh.channel("", to, "v", guest_of(TOKEN))
    code, _ = await end(channel.unary_unary(method)(wrapped(b"x")))
    may = method == (DIAL if by else f"{limits.ENROLMENT}Enrol")
    assert code is (grpc.StatusCode.OK if may else grpc.StatusCode.PERMISSION_DENIED)
