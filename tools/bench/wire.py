"""`python -m tools.bench.wire`: one exchange between two nodes on loopback, beside an echo.

The ways take turns, call by call, both ends in this process, so all share its noise:

    echo       fednode's transport, its TLS, its limits and its checks of the caller: bytes there,
               two bytes back
    exchange   the same with a message: encoded, checked and decoded, and its answer read
    relayed    an echo through a relay, which runs in a process of its own; with TLS alone
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import click
import numpy as np
import uvloop
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.core.types import Message, Tensors
from fednode.identity.certificates import Authority, Credential
from fednode.identity.identity import NodeIdentity
from fednode.identity.keys import pem_of, written
from fednode.identity.roster import Roster
from fednode.transports.address import RelayEntry
from fednode.transports.grpc import GrpcTransport
from fednode.transports.ports import free_ports
from fednode.wire import codec
from tools.bench.timer import Figure, Timer, as_json, show

ANSWER: Final = codec.encode_ack("ok")
HOST: Final = "127.0.0.1"
BYTES_MAX: Final = 256 << 20
"""Bytes that a row sends in each way; large messages are sent less often."""
CALLS_MIN: Final = 5
WARM: Final = 3
TIMEOUT_S: Final = 60.0
CALLS_S: Final = 1e6
"""The connection limiter counts as in a daemon, and never slows the calls that are timed."""
KIB: Final = (4, 64, 1024, 4096, 32768)
NOTE: Final = "Medians; the ways take turns. relayed: an echo through a relay in its own process."
Send = Callable[[], Awaitable[None]]


async def measure(size: int, tls: bool, calls: int) -> dict[str, Figure]:
    """Return the figures of one size: bytes of prompts, in float32."""
    said = message(size)
    calls = max(CALLS_MIN, min(calls, BYTES_MAX // size))
    timer = Timer()
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fednode-bench-"))
        ways = await _ways(stack, tls, Path(folder), said, timer)
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
        **{f"{name}, ms": medians[name] for name in ("echo", "exchange", "encode", "decode")},
        "exchange / echo": medians["exchange"] / medians["echo"],
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


def _credential(sponsor: Authority, name: str) -> Credential:
    key = ec.generate_private_key(ec.SECP256R1())
    return Credential(pem_of(key), sponsor.node(name, key.public_key()))


async def _ways(
    stack: contextlib.AsyncExitStack, tls: bool, folder: Path, said: Message, timer: Timer
) -> dict[str, Send]:
    """Return the ways of a node to others: "echo", "exchange", and with TLS "relayed"."""
    mesh_key = Ed25519PrivateKey.generate()
    root = Authority.root("bench", mesh_key)
    sponsor_key = ec.generate_private_key(ec.SECP256R1())
    sponsor = Authority("sponsor a", sponsor_key, root.sponsor("a", sponsor_key.public_key()))
    known = {name: _credential(sponsor, name) for name in ("a", "echo", "b", "behind")}
    roster = Roster("bench", mesh_key.public_key())
    frame = codec.encode(said, "float32")

    async def echo(frame: bytes, caller: str) -> bytes:
        return ANSWER

    async def take(frame: bytes, caller: str) -> bytes:
        with timer.of("decode"):
            decoded = codec.decode(frame)
        wrong = roster.check_sender(caller, decoded.sender) if tls else ""
        return codec.encode_ack("refused" if wrong else "ok", wrong)

    def transport(name: str, *relays: RelayEntry) -> GrpcTransport:
        own, roster = (lambda: known[name]), Roster("bench", mesh_key.public_key())
        made = GrpcTransport(own, roster, relays, calls_s=CALLS_S) if tls else GrpcTransport()
        stack.push_async_callback(made.close)
        return made

    sender = transport("a")
    at_echo = await transport("echo").listen(f"{HOST}:0", echo)
    at_b = await transport("b").listen(f"{HOST}:0", take)

    async def send_echo() -> None:
        await sender.send(at_echo, frame, TIMEOUT_S, "echo")

    async def exchange() -> None:
        with timer.of("encode"):
            sent = codec.encode(said, "float32")
        codec.decode_ack(await sender.send(at_b, sent, TIMEOUT_S, "b"))

    ways: dict[str, Send] = {"echo": send_echo, "exchange": exchange}
    if tls:
        identity = NodeIdentity.create(folder / "relay")
        identity.take_certificate(sponsor.node("relay", identity.key.public_key()), roster)
        relay = await _relay(stack, folder, written(mesh_key.public_key()))
        through, behind = transport("a", relay), transport("behind", relay)
        await behind.listen("relay", echo)
        assert behind.relay is not None
        await behind.relay.up.wait()

        async def send_relayed() -> None:
            await through.send("relay", frame, TIMEOUT_S, "behind")

        ways["relayed"] = send_relayed
    return ways


async def _relay(stack: contextlib.AsyncExitStack, folder: Path, mesh_key: str) -> RelayEntry:
    """Run a relay whose state lies in the folder "relay"."""
    at = RelayEntry("relay", f"{HOST}:{free_ports(1)[0]}")
    peers = [{"name": "a", "address": f"{HOST}:1"}]
    listed = {"mesh": "bench", "mesh_key": mesh_key, "peers": peers}
    (folder / "relay" / "peers.yaml").write_text(json.dumps(listed))
    words = ("relay", "--state", "relay", "--listen", at.address)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fednode.cli", *words), cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    await process.stdout.readline()
    return at


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
