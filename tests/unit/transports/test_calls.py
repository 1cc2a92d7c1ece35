"""Idle calls and streams of one key: bounded in number and time, and in nobody else's way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fednode.observe.health import HealthService
from fednode.transports import calls, exchange
from fednode.transports import grpc as transport_module
from fednode.transports.base import Address
from fednode.wire.gen import exchange_pb2, exchange_pb2_grpc
from tests.unit.identity.people import A, B, Person, lease, made_key, person

GUARD_S = 180.0
C = made_key(4)


async def who(frame: bytes, caller: str) -> bytes:
    return b"here"


@pytest.fixture
async def a() -> AsyncIterator[Address]:
    transport = person(A, "a").transport()
    transport.add_service(HealthService().register)
    yield await transport.listen("127.0.0.1:0", who)
    await transport.close()


async def silent() -> AsyncIterator[exchange_pb2.Frame]:
    await asyncio.Event().wait()
    yield exchange_pb2.Frame()


def leased() -> Person:
    now = int(time.time())
    return person(C, "c", proof=lease("c", C, issued=now - 9, expires=now + 999))


async def code(call: grpc.aio.Call) -> str:
    async with asyncio.timeout(GUARD_S):
        return str((await call.code()).name)


async def ended(call: grpc.aio.UnaryStreamCall) -> str:
    """Read a stream of answers to its end; return its status."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        async with asyncio.timeout(GUARD_S):
            async for _ in call:
                pass
    return await code(call)


async def test_idle_streams_of_one_key_are_in_nobody_elses_way(
    a: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "CALLS_MAX", 8)
    monkeypatch.setattr(calls, "CALLS_PER_KEY", 4)
    hostile = person(B, "b").transport()
    channel = await hostile.channel(a, "a")
    stub = exchange_pb2_grpc.ExchangeStub(channel)
    held = [stub.DeliverChunks(silent()) for _ in range(12)]
    ends = asyncio.as_completed([asyncio.create_task(code(call)) for call in held])
    assert {await next(ends) for _ in range(8)} == {"RESOURCE_EXHAUSTED"}
    assert sum(call.done() for call in held) == 8
    honest = leased().transport()
    assert await honest.send(a, b"x", GUARD_S, "a") == b"here"
    for call in held:
        call.cancel()
    await channel.close()
    await asyncio.gather(hostile.close(), honest.close())


async def test_streams_of_answers_are_bounded_and_end(
    a: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "STREAMS_PER_KEY", 2)
    transport = person(B, "b").transport()
    channel = await transport.channel(a, "a")
    stub = health_pb2_grpc.HealthStub(channel)

    def watch() -> grpc.aio.UnaryStreamCall:
        return stub.Watch(health_pb2.HealthCheckRequest())

    held = [watch(), watch()]
    for call in held:
        await call.read()
    assert await ended(watch()) == "RESOURCE_EXHAUSTED"
    assert await transport.send(a, b"x", GUARD_S, "a") == b"here"
    monkeypatch.setattr(calls, "STREAM_MAX_S", 0.05)
    for call in held:
        call.cancel()
    # Until the places of those that were cancelled are free.
    while await ended(watch()) != "OK":  # noqa: ASYNC110
        await asyncio.sleep(0)
    await channel.close()
    await transport.close()


async def test_a_frame_whose_pieces_stop_coming_is_given_up(
    a: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PIECE_MAX_S", 0.05)
    transport = person(B, "b").transport()
    channel = await transport.channel(a, "a")
    call = exchange_pb2_grpc.ExchangeStub(channel).DeliverChunks(silent())
    assert await code(call) == "DEADLINE_EXCEEDED"
    await channel.close()
    await transport.close()


async def test_a_key_keeps_no_memory_but_its_own(
    a: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that one member leaves in pieces take no room from another's."""
    monkeypatch.setattr(exchange, "ASSEMBLING_PER_KEY", 50)

    async def pieces() -> AsyncIterator[exchange_pb2.Frame]:
        yield exchange_pb2.Frame(data=bytes(40))
        await asyncio.Event().wait()

    hostile, honest = person(B, "b").transport(), leased().transport()
    bad, good = await hostile.channel(a, "a"), await honest.channel(a, "a")
    held = [exchange_pb2_grpc.ExchangeStub(bad).DeliverChunks(pieces()) for _ in range(2)]
    async with asyncio.timeout(GUARD_S):
        await asyncio.wait(
            [asyncio.ensure_future(one.code()) for one in held],
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def whole() -> AsyncIterator[exchange_pb2.Frame]:
        yield exchange_pb2.Frame(data=bytes(40))

    stub = exchange_pb2_grpc.ExchangeStub(good)
    assert (await stub.DeliverChunks(whole(), timeout=GUARD_S)).data == b"here"
    for call in held:
        call.cancel()
    await asyncio.gather(bad.close(), good.close())
    await asyncio.gather(hostile.close(), honest.close())


class Failing(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """A service with a defect."""

    async def Check(self, request: object, context: object) -> object:
        raise RuntimeError("at /home/ada")

    async def Watch(self, request: object, context: object) -> AsyncIterator[object]:
        yield health_pb2.HealthCheckResponse()
        raise RuntimeError("at /home/ada")


async def test_a_defect_ends_a_call_with_a_sentence_and_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing = person(A, "a").transport()
    failing.add_service(partial(health_pb2_grpc.add_HealthServicer_to_server, Failing()))
    place = await failing.listen("127.0.0.1:0", who)
    asking = person(B, "b").transport()
    channel = await asking.channel(place)
    stub = health_pb2_grpc.HealthStub(channel)
    for call in (stub.Check, stub.Check):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(health_pb2.HealthCheckRequest(), timeout=GUARD_S)
        assert (caught.value.code().name, caught.value.details()) == ("INTERNAL", calls.FAILED)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=GUARD_S)
    assert await ended(watch) == "INTERNAL"
    assert await watch.details() == calls.FAILED
    (said,) = [one for one in caplog.messages if "RuntimeError" in one]
    assert said.startswith(
        "A call ended by a defect of fednode itself (RuntimeError: at /home/ada)"
    )
    assert sum("crash" in name for name in os.listdir(tmp_path)) == 1
    await channel.close()
    for one in (asking, failing):
        await one.close()
