"""One end of a measurement, as a process of its own.

SIDE is old (today's transport), new (the prototype) or bare (it without its ConnectionLimiter).

    python -m tests.proto.ends serve SIDE FOLDER NAME [RELAY]    an echo; prints its address
    python -m tests.proto.ends relay SIDE FOLDER                a relay; prints its address
    python -m tests.proto.ends honest SIDE FOLDER NAME ADDRESS WHO BYTES PAUSE_MS [RELAY]
                               sends, waits, sends again; prints a line for each exchange

A folder holds the keys of a mesh: `python -m tests.proto.ends keys SIDE FOLDER`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

NAMES = ("v", "a", "b", "mallory", "relay", *(f"p{number}" for number in range(40)))


def keys(side: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if side == "old":
        from fednode.identity.identity import Identity

        ids = {name: Identity(folder / name, "bench", name).id for name in NAMES}
        (folder / "ids.json").write_text(json.dumps(ids))
        return
    from tests.meshes import Mesh

    mesh = Mesh.new("bench")
    (folder / "root.pem").write_bytes(mesh.root.anchor())
    for name in NAMES:
        made = mesh.sponsor.credential(name)
        (folder / f"{name}.key").write_bytes(made.key)
        (folder / f"{name}.pem").write_bytes(made.chain)


async def _bare(self: Any, server: Any, endpoint: Any, *_: Any) -> Any:
    """Listen as gRPC does it, with nothing in front: the side "bare"."""
    from fednode.transports.credentials import server_credentials

    at = f"{endpoint.numeric}:{endpoint.port}"
    port = server.add_secure_port(at, server_credentials(self._own, self._roster))
    await server.start()
    return endpoint.at(port)


def changed() -> None:
    """Take further arguments of gRPC from the environment, to try them."""
    from fednode.transport import relay_client, server

    for module, name, held in (
        (server, "PROTO_OPTIONS", "OPTIONS"),
        (relay_client, "PROTO_RELAY", "_OPTIONS"),
    ):
        if more := os.environ.get(name):
            setattr(
                module, held, tuple({**dict(getattr(module, held)), **json.loads(more)}.items())
            )
    if chunk := os.environ.get("PROTO_CHUNK"):
        relay_client.CHUNK_BYTES = int(chunk)  # type: ignore[misc]


def transport(side: str, folder: Path, name: str, relay: str = "", unbounded: bool = False) -> Any:
    """Return a transport of one side; relay: the address of a relay to go through."""
    if side == "old":
        from fednode.identity.identity import Identity
        from fednode.identity.trust import Trust
        from fednode.transports.grpc import GrpcTransport
        from fednode.transports.meter import Rates
        from fednode.transports.opening import RelayAt
        from fednode.transports.tls import Tls
        from fednode.transports.ways import Ways

        ids = json.loads((folder / "ids.json").read_text())
        trust = Trust(mesh="bench", listed=ids)
        identity = Identity(folder / name, "bench", name)
        more: dict[str, Any] = {}
        if unbounded:
            rates = Rates.around(messages_s=1e6, megabytes_s=1e6)
            more["rates"] = dataclasses.replace(rates, doors=1e6, doors_at_once=1e6)
        if relay:
            relays = (RelayAt(relay, ids["relay"]),)
            more["ways"] = Ways(relays=relays, reach="relay", id_of=lambda _, who: trust.id_of(who))
        return GrpcTransport(Tls(identity.credentials, trust.judge, lambda *_: None, **more))
    from fednode.identity.certificates import Credential
    from fednode.identity.roster import Roster
    from fednode.transports.grpc import GrpcTransport as New
    from fednode.transports.relay_client import RelayAt as At
    from fednode.transports.relay_client import RelayClient

    changed()
    if side == "bare":
        from fednode.transports.server import Server

        Server._listen = _bare  # type: ignore[method-assign]
    made = Credential((folder / f"{name}.key").read_bytes(), (folder / f"{name}.pem").read_bytes())
    roster = Roster((folder / "root.pem").read_bytes())

    def own() -> Credential:
        return made

    client = RelayClient([At(relay, "relay")], own, roster) if relay else None
    return New(
        own,
        roster,
        client,
        reach="relay" if relay else "auto",
        scale=1e4 if unbounded else 1.0,
    )


async def echo(frame: bytes, caller: str) -> bytes:
    return b"ok"


async def until_closed() -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.buffer.read)


async def serve(side: str, folder: Path, name: str, relay: str) -> None:
    end = transport(side, folder, name, relay, unbounded=bool(os.environ.get("UNBOUNDED")))
    if size := int(os.environ.get("EXPECT", "0")):
        end.expect(size)
    from grpc_health.v1 import health, health_pb2_grpc

    health_service = health.aio.HealthServicer()
    end.add_service(
        lambda server: health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    )
    print(await end.listen("127.0.0.1:0", echo), flush=True)
    await until_closed()
    await end.close()


async def relay(side: str, folder: Path) -> None:
    from fednode.transports.address import parse

    if side == "old":
        from fednode.identity.identity import Identity
        from fednode.identity.trust import Trust
        from fednode.transports.relay import Relay
        from fednode.transports.tls import Tls

        ids = json.loads((folder / "ids.json").read_text())
        trust = Trust(mesh="bench", listed=ids)
        identity = Identity(folder / "relay", "bench", "relay")
        running = Relay(lambda id: "" if trust.name_of(id) else "unknown")
        tls = Tls(
            identity.credentials,
            lambda der, _: trust.judge(der, _),
            lambda *_: None,
            relay=running,
        )
        port = await tls.listen(parse("127.0.0.1:0"))
        print(f"127.0.0.1:{port}", flush=True)
        watching = asyncio.ensure_future(running.watch())
        await until_closed()
        watching.cancel()
        return
    from fednode.identity.certificates import Credential
    from fednode.identity.roster import Roster
    from fednode.transports.limits import Limits
    from fednode.transports.relay_service import DIAL, TAKE, RelayService
    from fednode.transports.server import Server

    made = Credential((folder / "relay.key").read_bytes(), (folder / "relay.pem").read_bytes())
    roster = Roster((folder / "root.pem").read_bytes())
    service = RelayService(roster)
    changed()
    server = Server(lambda: made, roster, Limits(roster, endless=frozenset((DIAL, TAKE))), 1e4)
    print(await server.start(parse("127.0.0.1:0"), [service.register]), flush=True)
    await until_closed()
    await server.close()


async def honest(
    side: str, folder: Path, name: str, to: str, who: str, size: int, pause_ms: float, relay: str
) -> None:
    from fednode.errors import FednodeError

    end = transport(side, folder, name, relay)
    frame = os.urandom(size)
    closed = asyncio.ensure_future(until_closed())
    fresh = bool(os.environ.get("FRESH"))
    while not closed.done():
        start, why = time.perf_counter(), ""
        try:
            await end.send(to, frame, 5.0, who)
        except FednodeError as fault:
            why = str(fault)
        print(f"{time.time():.3f} {1e3 * (time.perf_counter() - start):.2f} {why}", flush=True)
        if fresh:
            await end.close()
            end = transport(side, folder, name, relay)
        await asyncio.sleep(pause_ms / 1e3)
    await end.close()


def main(words: list[str]) -> None:
    what, side, folder, *rest = words
    place = Path(folder)
    if what == "keys":
        keys(side, place)
    elif what == "serve":
        uvloop.run(serve(side, place, rest[0], rest[1] if len(rest) > 1 else ""))
    elif what == "relay":
        uvloop.run(relay(side, place))
    elif what == "honest":
        name, to, who, size, pause, *through = rest
        uvloop.run(honest(side, place, name, to, who, int(size), float(pause), "".join(through)))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1:])
