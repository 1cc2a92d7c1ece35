"""Nodes on this machine: their files, and daemons as forks of one process with all imports.

Imports take longer than most of what the tests do with a daemon. Tests of what comes before the
imports, or of how a person starts one, start it as a program.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import yaml

from fednode.app.client import client_of
from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode.settings.peers import load_peers
from fednode.transports.address import asked_at
from fednode.transports.ports import free_ports
from fednode_bootstrap import daemon
from fednode_bootstrap.daemon import Daemon, stop
from tests.contract.faults import pause
from tests.unit.identity.people import SmallMesh

# A bound for a test that hangs, not a measurement.
GUARD_S: Final = 180.0
POLL_S: Final = 0.05
CLOSED: Final = ("--set", "tuning.kind=closed-form", "--set", "membership.preset=local")
ENDLESS: Final = ("--set", "rounds.max=0", "--set", "rounds.min_interval_s=0.1")


async def start(made: Daemon, program: bool = False) -> None:
    """Start a daemon in this folder and with this environment, as a fork or as a program."""
    forks = daemon.FORKS and not program
    if forks:
        daemon.start_server(None, ("tuning.kind=closed-form",))
    with mock.patch.object(daemon, "FORKS", forks):
        await made.start()


@contextlib.asynccontextmanager
async def running(
    folder: Path, name: str, *words: str, program: bool = False
) -> AsyncIterator[Daemon]:
    """Run `fednode` with these words until the block ends; its output is in NAME.log."""
    made = Daemon(name, words, folder / f"{name}.log")
    await start(made, program)
    try:
        yield made
    finally:
        await stop((made,), GUARD_S)


class Nodes:
    """The nodes of a mesh in one folder, which has their peers.yaml and their state directories.

    settings: words after `fednode start` for all of them.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = "ab",
        settings: tuple[str, ...] = (),
        *,
        listed: str = "",
        tls: bool = True,
        relay: str = "",
    ) -> None:
        """Write certificates and peers.yaml.

        listed: the nodes in peers.yaml, if not all. relay: address of a relay, through which all
        nodes are reached.
        """
        self.folder, self.settings, self.tls, self.relay = folder, settings, tls, relay
        self.keys = SmallMesh("m")
        ports = free_ports(len(names))
        at = ["relay" if relay else f"127.0.0.1:{port}" for port in ports]
        self.address = dict(zip(names, at, strict=True))
        for name in [*names, *(["relay-1"] if relay else [])] if tls else []:
            self.keys.write(folder / name, name)
        self.write_peers(folder, {name: self.address[name] for name in listed or names})

    def write_peers(self, folder: Path, addresses: dict[str, str]) -> None:
        """Write a peers.yaml of this mesh into a folder."""
        listed = [{"name": name, "address": address} for name, address in addresses.items()]
        key = {"mesh_key": self.keys.mesh_key_text} if self.tls else {"insecure": True}
        relays = [{"name": "relay-1", "address": self.relay}] if self.relay else []
        tree = {"mesh": "m", **key, "relays": relays, "peers": listed}
        (folder / "peers.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")

    @property
    def peers(self) -> Path:
        """Return the peers.yaml of all."""
        return self.folder / "peers.yaml"

    def place(self, name: str, state: Path | None = None) -> tuple[str, ...]:
        """Return the words that name a node's mesh and its state directory."""
        return ("--peers", str(self.peers), "--state", str(state or self.folder / name))

    def words(self, name: str, *more: str, state: Path | None = None) -> tuple[str, ...]:
        """Return the words after `fednode` that start a node."""
        return ("start", *self.place(name, state), "--name", name, *self.settings, *more)

    def running(
        self, name: str, *more: str, state: Path | None = None, program: bool = False
    ) -> AbstractAsyncContextManager[Daemon]:
        """Run a node until the block ends."""
        return running(self.folder, name, *self.words(name, *more, state=state), program=program)

    @contextlib.asynccontextmanager
    async def all_running(self, *more: str) -> AsyncIterator[dict[str, Daemon]]:
        """Run all nodes until the block ends."""
        async with contextlib.AsyncExitStack() as stack:
            yield {
                name: await stack.enter_async_context(self.running(name, *more))
                for name in self.address
            }

    def client(self, name: str = "a") -> Client:
        """Return a client with a node's key."""
        return client_of(load_peers(self.peers), self.folder / name)

    async def until(self, name: str, holds: Callable[[Any], object]) -> Any:
        """Ask a node with its own key until something holds of its status; return that status."""
        async with asyncio.timeout(GUARD_S), self.client(name) as client:
            while True:
                with contextlib.suppress(FednodeError):
                    reply = await client.status(asked_at(self.address[name], name))
                    if holds(reply):
                        return reply
                await pause(POLL_S)


def states(reply: Any) -> dict[str, str]:
    """Return how a node sees its peers."""
    return {peer.name: peer.state for peer in reply.peers}


def alive(reply: Any, *names: str) -> bool:
    """Tell whether a node sees these peers alive."""
    return all(states(reply).get(name) == "alive" for name in names)


def finished(reply: Any) -> bool:
    return bool(reply.life == "finished")
