"""What only the gRPC transport does: loopback, services beside Exchange, hostile callers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest
import uvloop

from fednode.errors import AddressError, Unreachable
from fednode.transports import calls, exchange, places
from fednode.transports import grpc as transport_module
from fednode.transports.base import Address, OnFrame
from fednode.transports.framing import PIECE_BYTES
from fednode.transports.grpc import GrpcTransport, dial
from fednode.wire.gen import exchange_pb2, exchange_pb2_grpc, status_pb2, status_pb2_grpc

ANY = "127.0.0.1:0"
GUARD_S = 180.0

Open = Callable[[OnFrame], Awaitable[Address]]


async def echo(frame: bytes, caller: str = "") -> bytes:
    return b"/" + frame[:16]


async def never(frame: bytes, caller: str = "") -> bytes:
    await asyncio.Event().wait()
    return frame


@pytest.fixture
async def sender() -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def receiver() -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport()
    yield transport
    await transport.close()


class Status(status_pb2_grpc.NodeServicer):
    """A status service as the runtime adds it."""

    async def Status(
        self, request: status_pb2.StatusRequest, context: object
    ) -> status_pb2.StatusReply:
        return status_pb2.StatusReply(name="node-1", round=7)


async def test_a_service_is_served_beside_exchange(
    sender: GrpcTransport, receiver: GrpcTransport
) -> None:
    receiver.add_service(
        lambda server: status_pb2_grpc.add_NodeServicer_to_server(Status(), server)
    )
    address = await receiver.listen(ANY, echo)
    channel = dial(address)
    stub = status_pb2_grpc.NodeStub(channel)
    reply = await stub.Status(status_pb2.StatusRequest(), timeout=GUARD_S)
    await channel.close()
    assert (reply.name, reply.round) == ("node-1", 7)
    assert await sender.send(address, b"x", GUARD_S) == b"/x"


async def test_services_come_before_listen(receiver: GrpcTransport) -> None:
    await receiver.listen(ANY, echo)
    with pytest.raises(RuntimeError, match="before listen"):
        receiver.add_service(lambda server: None)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", "192.0.2.7:7700", "node-1:7700", "[2001:db8::1]:1"]
)
async def test_nothing_but_loopback_without_tls(sender: GrpcTransport, address: Address) -> None:
    sentence = r"without keys .insecure: true in peers.yaml. only loopback is allowed; use 127"
    with pytest.raises(AddressError, match=sentence):
        await sender.listen(address, echo)
    with pytest.raises(AddressError, match=sentence):
        await sender.send(address, b"x", GUARD_S)
    with pytest.raises(AddressError, match=sentence):
        dial(address)


async def test_localhost_keeps_its_name(sender: GrpcTransport, receiver: GrpcTransport) -> None:
    address = await receiver.listen("localhost:0", echo)
    assert address.startswith("localhost:")
    assert await sender.send(address, b"x", GUARD_S) == b"/x"
    assert await sender.send(address.replace("localhost", "127.0.0.1"), b"y", GUARD_S) == b"/y"


def ipv6_is_there() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not ipv6_is_there(), reason="this machine has no IPv6 loopback")
async def test_ipv6(sender: GrpcTransport, receiver: GrpcTransport) -> None:
    address = await receiver.listen("[::1]:0", echo)
    assert address.startswith("[::1]:")
    assert await sender.send(address, b"x", GUARD_S) == b"/x"


async def test_a_port_of_any_program_counts_as_in_use(
    receiver: GrpcTransport, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressError) as raised:
            await receiver.listen(f"127.0.0.1:{port}", echo)
    assert str(raised.value) == (
        f"cannot listen on 127.0.0.1:{port}: the port {port} is in use; "
        "stop the other process or choose another port"
    )
    assert capfd.readouterr().err == ""


async def test_a_port_that_is_taken_at_the_last_moment_counts_as_in_use(
    sender: GrpcTransport, receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await receiver.listen(ANY, echo)
    monkeypatch.setattr(transport_module, "check_free", lambda endpoint: None)
    with pytest.raises(AddressError, match="is in use"):
        await sender.listen(address, echo)


async def test_what_the_system_says_of_an_address_is_passed_on(
    receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(AddressError, match=r"cannot listen on 127\.0\.0\.1:80: Permission denied"):
        await receiver.listen("127.0.0.1:80", echo)


async def test_a_proxy_of_the_environment_is_not_used(
    sender: GrpcTransport, receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    address = await receiver.listen(ANY, echo)
    assert await sender.send(address, b"x", GUARD_S) == b"/x"


async def test_a_server_without_exchange_is_not_a_node(sender: GrpcTransport) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port(ANY)
    await server.start()
    with pytest.raises(Unreachable, match=r"who listens at .* is not a fednode node"):
        await sender.send(f"127.0.0.1:{port}", b"x", GUARD_S)
    await server.stop(None)


async def test_a_server_that_speaks_something_else_is_unreachable(sender: GrpcTransport) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match="nobody answers"):
            await sender.send(f"127.0.0.1:{port}", b"x", GUARD_S)


async def test_a_server_that_says_nothing_meets_the_deadline(sender: GrpcTransport) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            await sender.send(f"127.0.0.1:{silent.getsockname()[1]}", b"x", 0.1)


async def test_more_calls_than_a_connection_takes_wait_their_turn(
    sender: GrpcTransport, receiver: GrpcTransport
) -> None:
    running = most = 0

    async def on_frame(frame: bytes, caller: str = "") -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return frame

    address = await receiver.listen(ANY, on_frame)
    count = 4 * transport_module.CALLS_PER_PEER
    frames = [str(number).encode() for number in range(count)]
    replies = await asyncio.gather(*(sender.send(address, each, GUARD_S) for each in frames))
    assert replies == frames
    assert 1 < most <= transport_module.CALLS_PER_PEER


async def test_a_call_that_waits_for_its_turn_has_a_deadline_and_sees_close(
    sender: GrpcTransport, receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "CALLS_PER_PEER", 1)
    taken = asyncio.Event()

    async def on_frame(frame: bytes, caller: str = "") -> bytes:
        taken.set()
        return await never(frame)

    address = await receiver.listen(ANY, on_frame)
    first = asyncio.ensure_future(sender.send(address, b"1", GUARD_S))
    await taken.wait()
    with pytest.raises(Unreachable, match=r"did not answer within 0\.05 s"):
        await sender.send(address, b"2", 0.05)
    third = asyncio.ensure_future(sender.send(address, b"3", GUARD_S))
    await asyncio.sleep(0)
    await sender.close()
    for call in (first, third):
        with pytest.raises(Unreachable, match="was closed before the answer"):
            await call


async def test_the_address_used_longest_ago_makes_room(
    sender: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PLACES_MAX", 2)
    receivers = [GrpcTransport() for _ in range(3)]
    addresses = [await receiver.listen(ANY, echo) for receiver in receivers]
    for address in (*addresses, *addresses):
        assert await sender.send(address, b"x", GUARD_S) == b"/x"
        assert len(sender._peers) <= 2
    assert {address for address, _ in sender._peers} == set(addresses[1:])
    await asyncio.gather(*(receiver.close() for receiver in receivers))


async def test_a_handler_without_end_is_ended(
    sender: GrpcTransport, receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "HANDLING_MAX_S", 0.05)
    address = await receiver.listen(ANY, never)
    with pytest.raises(Unreachable, match="did not answer"):
        await sender.send(address, b"x", GUARD_S)


async def chunks(*pieces: bytes) -> AsyncIterator[exchange_pb2.Frame]:
    for piece in pieces:
        yield exchange_pb2.Frame(data=piece)


async def refused(
    address: Address, call: Callable[[exchange_pb2_grpc.ExchangeStub], object]
) -> str:
    """Make a call as no transport would; return the status it ends in."""
    channel = dial(address)
    try:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(exchange_pb2_grpc.ExchangeStub(channel))  # type: ignore[misc]
    finally:
        await channel.close()
    return str(raised.value.code().name)


async def test_a_caller_that_breaks_the_bounds_is_refused(
    sender: GrpcTransport, receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[bytes] = []

    async def on_frame(frame: bytes, caller: str = "") -> bytes:
        frames.append(frame)
        return b""

    monkeypatch.setattr(exchange, "FRAME_BYTES_MAX", 100)
    address = await receiver.listen(ANY, on_frame)
    large = exchange_pb2.Frame(data=bytes(PIECE_BYTES + 1000))
    for call in (
        lambda stub: stub.Deliver(large, timeout=GUARD_S),
        lambda stub: stub.DeliverChunks(chunks(large.data), timeout=GUARD_S),
        lambda stub: stub.DeliverChunks(chunks(bytes(60), bytes(60)), timeout=GUARD_S),
        lambda stub: stub.DeliverChunks(chunks(b"a", b"", b"b"), timeout=GUARD_S),
    ):
        assert await refused(address, call) == "RESOURCE_EXHAUSTED"
    monkeypatch.setattr(exchange, "ASSEMBLING_BYTES_MAX", 50)
    assert (
        await refused(address, lambda stub: stub.DeliverChunks(chunks(bytes(60)), timeout=GUARD_S))
        == "RESOURCE_EXHAUSTED"
    )
    assert frames == []
    assert await sender.send(address, b"x", GUARD_S) == b""
    assert frames == [b"x"]


async def test_memory_for_pieces_is_given_back(
    sender: GrpcTransport, receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = PIECE_BYTES + 1
    monkeypatch.setattr(exchange, "ASSEMBLING_BYTES_MAX", size)
    address = await receiver.listen(ANY, echo)
    for _ in range(3):
        assert await sender.send(address, bytes(size), GUARD_S) == b"/" + bytes(16)


async def test_pieces_that_never_end_are_given_up(
    receiver: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "HANDLING_MAX_S", 0.05)
    address = await receiver.listen(ANY, echo)
    over = asyncio.Event()

    async def endless() -> AsyncIterator[exchange_pb2.Frame]:
        yield exchange_pb2.Frame(data=b"a")
        await over.wait()

    assert await refused(address, lambda stub: stub.DeliverChunks(endless())) == "DEADLINE_EXCEEDED"
    over.set()


def test_pings_are_rarer_than_the_other_end_allows() -> None:
    server = dict(transport_module._SERVER_OPTIONS)
    for options in (server, dict(transport_module._CHANNEL_OPTIONS)):
        pings = options["grpc.keepalive_time_ms"]
        assert pings >= 2 * server["grpc.http2.min_recv_ping_interval_without_data_ms"]


def test_a_connection_takes_more_calls_than_a_peer_makes() -> None:
    streams = transport_module.STREAMS_MAX
    assert transport_module.CALLS_PER_PEER < streams < transport_module.CALLS_MAX
    assert transport_module.CALLS_PER_PEER < calls.CALLS_PER_KEY


def test_a_peer_that_returns_is_dialled_within_a_second() -> None:
    channel = dict(transport_module._CHANNEL_OPTIONS)
    # gRPC adds up to a fifth by chance.
    assert 1.2 * channel["grpc.max_reconnect_backoff_ms"] < 1000


def test_uvloop_carries_frames_too() -> None:
    async def once() -> bytes:
        receiver, sender = GrpcTransport(), GrpcTransport()
        address = await receiver.listen(ANY, echo)
        reply = await sender.send(address, bytes(PIECE_BYTES + 1), GUARD_S)
        await sender.close()
        await receiver.close()
        return reply

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(once()) == b"/" + bytes(16)
