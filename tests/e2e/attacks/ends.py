"""One end of a measurement, as a process of its own.

    python -m tests.e2e.attacks.ends keys FOLDER                  the certificates of a mesh
    python -m tests.e2e.attacks.ends serve FOLDER NAME            an echo; prints its address
    python -m tests.e2e.attacks.ends relay FOLDER                 a relay; prints its address
    python -m tests.e2e.attacks.ends behind FOLDER NAME RELAY     an echo that waits at a relay
    python -m tests.e2e.attacks.ends honest FOLDER NAME ADDRESS WHO BYTES PAUSE_MS [RELAY]
                        sends, waits, sends again; prints a line for each exchange

With FRESH in the environment, `honest` connects anew for each exchange.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import uvloop
from grpc_health.v1 import health, health_pb2_grpc

from fednode.errors import FednodeError
from fednode.identity.certificates import Credential
from fednode.identity.keys import read_public
from fednode.identity.roster import Roster
from fednode.transports.address import RelayEntry
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay_service import RelayService
from tests.contract.faults import pause
from tests.unit.identity.people import SmallMesh

NAMES: Final = ("v", "a", "b", "mallory", "relay", "decoy")
MESH: Final = "attacks"
RELAY: Final = "relay"


def keys(folder: Path) -> None:
    """Write the certificates of a mesh."""
    folder.mkdir(parents=True, exist_ok=True)
    mesh = SmallMesh(MESH)
    (folder / "mesh").write_text(mesh.mesh_key_text)
    for name in NAMES:
        shown = mesh.credential(name)
        (folder / f"{name}.key").write_bytes(shown.key)
        (folder / f"{name}.pem").write_bytes(shown.chain)


def credential(folder: Path, name: str) -> Credential:
    """Return what a node shows."""
    return Credential((folder / f"{name}.key").read_bytes(), (folder / f"{name}.pem").read_bytes())


def roster(folder: Path) -> Roster:
    """Return whom a node believes."""
    return Roster(MESH, read_public((folder / "mesh").read_text()))


def transport(folder: Path, name: str, relay: str = "") -> GrpcTransport:
    """Return a node's transport; relay: the address of the relay to go through."""
    shown, known = credential(folder, name), roster(folder)
    relays = [RelayEntry(RELAY, relay)] if relay else []
    return GrpcTransport(lambda: shown, known, relays)


async def echo(frame: bytes, caller: str) -> bytes:
    """Answer."""
    return b"ok"


async def until_closed() -> None:
    """Return once nobody writes to this process any more."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


async def serve(folder: Path, name: str, relay: str = "") -> None:
    """Answer until told to stop."""
    end, checks = transport(folder, name, relay), health.aio.HealthServicer()

    def register(server: Any) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)

    end.add_service(register)
    at = await end.listen("relay" if relay else "127.0.0.1:0", echo)
    if end.relay is not None:
        await end.relay.up.wait()
    print(at, flush=True)
    await until_closed()
    await end.close()


async def run_relay(folder: Path) -> None:
    """Be a relay until told to stop."""
    shown, known = credential(folder, RELAY), roster(folder)
    service = RelayService(known)
    server = GrpcTransport(lambda: shown, known)
    server.add_service(service.register)
    print(await server.listen("127.0.0.1:0", None), flush=True)
    await until_closed()
    await server.close()


async def honest(
    folder: Path, name: str, to: str, who: str, size: int, pause_ms: float, relay: str = ""
) -> None:
    """Send again and again."""
    end, fresh = transport(folder, name, relay), bool(os.environ.get("FRESH"))
    frame, closed = os.urandom(size), asyncio.ensure_future(until_closed())
    while not closed.done():
        start, why = time.perf_counter(), ""
        try:
            await end.send(to, frame, 5.0, who)
        except FednodeError as fault:
            why = str(fault)
        print(f"{time.time():.3f} {1e3 * (time.perf_counter() - start):.2f} {why}", flush=True)
        if fresh:
            await end.close()
            end = transport(folder, name, relay)
        await pause(pause_ms / 1e3)
    await end.close()


def main(words: list[str]) -> None:
    """Be one end."""
    what, folder, *rest = words
    place = Path(folder)
    if what == "keys":
        keys(place)
    elif what in {"serve", "behind"}:
        uvloop.run(serve(place, *rest))
    elif what == "relay":
        uvloop.run(run_relay(place))
    elif what == "honest":
        name, to, who, size, pause_ms, *relay = rest
        uvloop.run(honest(place, name, to, who, int(size), float(pause_ms), *relay))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1:])
