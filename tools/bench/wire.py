"""`python -m tools.bench.wire`: one exchange between two nodes on loopback, beside echoes.

The ways take turns, call by call, both ends in this process, so all share its noise:

    raw        grpc.aio alone, with gRPC's own TLS: bytes there, two bytes back
    echo       fednode's transport: its TLS, its limits and its checks of the caller
    exchange   the same with a message: encoded, checked and decoded, and its answer read
    relayed    an echo through a relay, which runs in a process of its own; with TLS alone
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import click
import grpc
import grpc.aio
import numpy as np
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fednode.core.types import Message, Tensors
from fednode.errors import Unreachable
from fednode.identity.identity import Identity
from fednode.identity.keys import node_id
from fednode.identity.trust import Trust
from fednode.transports.framing import PIECE_BYTES
from fednode.transports.grpc import GrpcTransport
from fednode.transports.meter import Rates
from fednode.transports.opening import RelayAt
from fednode.transports.ports import free_ports
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from fednode.wire import codec
from fednode_bootstrap.relay_host import key_in
from tools.bench.timer import Figure, Timer, as_json, show

ANSWER: Final = codec.encode_ack("ok")
HOST: Final = "127.0.0.1"
NAME: Final = "localhost"
BYTES_MAX: Final = 256 << 20
"""Bytes that a row sends in each way; large messages are sent less often."""
CALLS_MIN: Final = 5
WARM: Final = 3
TIMEOUT_S: Final = 60.0
TRIES: Final = 100
"""Tries to reach a node that has only just begun to wait at a relay."""
UNBOUNDED: Final = Rates.around(messages_s=1e6, megabytes_s=1e6)
"""The meter counts as in a daemon, and never slows the calls that are timed."""
KIB: Final = (4, 64, 1024, 4096, 32768)
NOTE: Final = (
    "Medians; the ways take turns. relayed: an echo through a relay in a process of its own."
)
Send = Callable[[], Awaitable[None]]


async def measure(size: int, tls: bool, calls: int) -> dict[str, Figure]:
    """Return the figures of one size: bytes of prompts, in float32."""
    said = message(size)
    frame = codec.encode(said, "float32")
    calls = max(CALLS_MIN, min(calls, BYTES_MAX // size))
    timer = Timer()
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as folder:
        async with (
            _raw(tls, frame) as raw,
            _nodes(tls, Path(folder), said, timer) as (echo, exchange),
            _through_a_relay(tls, Path(folder), frame) as relayed,
        ):
            ways: dict[str, Send] = {"raw": raw, "echo": echo, "exchange": exchange}
            ways |= {} if relayed is None else {"relayed": relayed}
            for call in range(WARM + calls):
                if call == WARM:
                    timer.seconds.clear()
                for name, send in ways.items():
                    with timer.of(name):
                        await send()
    medians = {name: 1e3 * timer.median(name) for name in timer.seconds}
    return {
        "prompts, bytes": size,
        "TLS": tls,
        "calls": calls,
        "raw, ms": medians["raw"],
        "echo, ms": medians["echo"],
        "exchange, ms": medians["exchange"],
        "p99, ms": 1e3 * timer.quantile("exchange", 0.99),
        "encode, ms": medians["encode"],
        "decode, ms": medians["decode"],
        "exchange / echo": medians["exchange"] / medians["echo"],
        "echo / raw": medians["echo"] / medians["raw"],
        "MB/s": size / medians["exchange"] / 1e3,
        "relayed / echo": medians["relayed"] / medians["echo"] if tls else None,
    }


def message(size: int) -> Message:
    """Return a message with prompts of so many bytes in float32."""
    numbers = np.random.default_rng(1).standard_normal(size // 4, np.float32)
    return Message(
        mesh="bench",
        fingerprint="ab" * 32,
        policy="zerodfl",
        sender="a",
        round=1,
        phase="prompts",
        tensors=Tensors({"context": numbers}),
    )


@contextlib.asynccontextmanager
async def _nodes(
    tls: bool, folder: Path, said: Message, timer: Timer
) -> AsyncIterator[tuple[Send, Send]]:
    """Give the ways "echo" and "exchange" of one node to two others."""
    known = {name: Identity(folder / name, "bench", name) for name in ("a", "echo", "b")}
    trust = Trust(mesh="bench", listed={name: identity.id for name, identity in known.items()})

    def transport(name: str) -> GrpcTransport:
        shown = known[name].credentials
        return GrpcTransport(
            Tls(shown, trust.judge, lambda *_: None, rates=UNBOUNDED) if tls else None
        )

    async def echo(frame: bytes, caller: str) -> bytes:
        return ANSWER

    async def take(frame: bytes, caller: str) -> bytes:
        with timer.of("decode"):
            decoded = codec.decode(frame)
        wrong = trust.refusal(caller, decoded.sender) if tls else ""
        return codec.encode_ack("refused" if wrong else "ok", wrong)

    ends = {name: transport(name) for name in known}
    addresses = {
        name: await ends[name].listen(f"{HOST}:0", handler)
        for name, handler in (("echo", echo), ("b", take))
    }
    frame = codec.encode(said, "float32")

    async def send_echo() -> None:
        await ends["a"].send(addresses["echo"], frame, TIMEOUT_S, "echo")

    async def exchange() -> None:
        with timer.of("encode"):
            sent = codec.encode(said, "float32")
        codec.decode_ack(await ends["a"].send(addresses["b"], sent, TIMEOUT_S, "b"))

    try:
        yield send_echo, exchange
    finally:
        for end in ends.values():
            await end.close()


@contextlib.asynccontextmanager
async def _through_a_relay(tls: bool, folder: Path, frame: bytes) -> AsyncIterator[Send | None]:
    """Give the way "relayed": an echo through a relay in a process of its own; None without TLS."""
    if not tls:
        yield None
        return
    where = f"{HOST}:{free_ports(1)[0]}"
    names = ("from", "to")
    known = {name: Identity(folder / name, "bench", name) for name in names}
    ids = {name: identity.id for name, identity in known.items()}
    relays = (RelayAt(where, node_id(key_in(folder / "relay"))),)
    peers = [{"name": name, "address": "relay", "id": id} for name, id in ids.items()]
    listed = [{"address": one.address, "id": one.id} for one in relays]
    (folder / "peers.yaml").write_text(
        json.dumps({"mesh": "bench", "peers": peers, "relays": listed})
    )
    words = ["relay", "run", "--state", folder / "relay", "--peers", folder / "peers.yaml"]
    relay = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fednode.cli", *map(str, words), "--listen", where),
        stdout=asyncio.subprocess.PIPE,
    )
    assert relay.stdout is not None
    await relay.stdout.readline()
    trust = Trust(mesh="bench", listed=ids)
    ways = Ways(relays=relays, reach="relay", id_of=lambda _, name: trust.id_of(name))

    def transport(name: str) -> GrpcTransport:
        shown = known[name].credentials
        return GrpcTransport(Tls(shown, trust.judge, lambda *_: None, rates=UNBOUNDED, ways=ways))

    async def echo(frame: bytes, caller: str) -> bytes:
        return ANSWER

    ends = [transport(name) for name in names]
    await ends[1].listen("relay", echo)

    async def send() -> None:
        await ends[0].send("relay", frame, TIMEOUT_S, "to")

    try:
        for _ in range(TRIES):
            with contextlib.suppress(Unreachable):
                await send()
                break
            await asyncio.sleep(0.05)
        yield send
    finally:
        for end in ends:
            await end.close()
        relay.terminate()
        await relay.wait()


@contextlib.asynccontextmanager
async def _raw(tls: bool, frame: bytes) -> AsyncIterator[Send]:
    """Give the way "raw": grpc.aio without anything of fednode's."""

    async def take(request: bytes, context: Any) -> bytes:
        return ANSWER

    async def take_pieces(requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in requests:
            pass
        return ANSWER

    server = grpc.aio.server()
    handlers = {
        "One": grpc.unary_unary_rpc_method_handler(take),
        "Many": grpc.stream_unary_rpc_method_handler(take_pieces),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("raw", handlers),))
    if tls:
        key, certificate = _certificate()
        port = server.add_secure_port(
            f"{HOST}:0", grpc.ssl_server_credentials([(key, certificate)])
        )
        options = [("grpc.ssl_target_name_override", NAME)]
        trusted = grpc.ssl_channel_credentials(certificate)
        channel = grpc.aio.secure_channel(f"{HOST}:{port}", trusted, options)
    else:
        port = server.add_insecure_port(f"{HOST}:0")
        channel = grpc.aio.insecure_channel(f"{HOST}:{port}")
    await server.start()
    single, many = channel.unary_unary("/raw/One"), channel.stream_unary("/raw/Many")
    pieces = [frame[at : at + PIECE_BYTES] for at in range(0, len(frame), PIECE_BYTES)]

    async def send() -> None:
        await (single(frame) if len(pieces) == 1 else many(iter(pieces)))

    try:
        yield send
    finally:
        await channel.close()
        await server.stop(None)


def _certificate() -> tuple[bytes, bytes]:
    """Return a key and its own certificate in PEM; gRPC's TLS takes no Ed25519 key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


@click.command()
@click.option("--kib", type=click.IntRange(1, 65536), multiple=True, help="Of prompts.")
@click.option("--calls", type=click.IntRange(min=1), default=200, show_default=True)
@as_json
def wire(kib: tuple[int, ...], calls: int, as_json: bool) -> None:
    """Time one exchange, with and without TLS."""
    rows = [
        uvloop.run(measure(size << 10, tls, calls)) for tls in (True, False) for size in kib or KIB
    ]
    show("One exchange on loopback", rows, as_json, NOTE)


if __name__ == "__main__":
    wire()
