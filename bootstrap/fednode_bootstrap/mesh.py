"""Run several real daemons on this machine, watch them, and leave none behind.

    async with LocalMesh(MeshSettings(nodes=3, run_dir=folder)) as mesh:
        await mesh.wait_finished(timeout_s=60)
        rounds = await mesh.history("node-1")

Leaving the context ends every daemon: SIGTERM, then SIGKILL after a grace period. If this process
itself is killed, the daemons end, too (fednode_bootstrap.daemon).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import yaml

from fednode.app.client import client_of
from fednode.core.view import Life
from fednode.errors import ConfigError, FednodeError
from fednode.identity import keys
from fednode.identity.certificates import Authority
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster
from fednode.observe.client import Client
from fednode.settings.peers import load_peers
from fednode.transports.ports import free_ports
from fednode.wire.gen.status_pb2 import Round, StatusReply
from fednode_bootstrap.daemon import FORKS, PROGRAM, Daemon, exit_words, start_server, stop

EVENTS_KEPT: Final = 200
NODES_MAX: Final = 64
POLL_S: Final = 0.5
CROWD: Final = 8
"""More nodes than this for each core take the membership preset `wan`: few probes."""
START_S: Final = 10.0
"""Seconds for each node of such a mesh to start; a late one would find the others far ahead."""


class MeshError(FednodeError):
    """The mesh as a whole cannot continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """Settings of a local mesh.

    Attributes:
        run_dir: gets peers.yaml, and a state directory and a log per node; existing state is
            resumed
        config: the node.yaml of every node
        settings: "section.key=value", override config
        poll_s: time between status requests
        grace_s: time for a daemon to end by itself
        module: the daemon's program, run as `python -m` does
        tls: give every node a key and a certificate, and let them speak mutual TLS
        at_once: most daemons that load their model at the same time; the next one waits for them
    """

    run_dir: Path
    nodes: int = 4
    config: Path | None = None
    settings: tuple[str, ...] = ()
    name: str = "local"
    poll_s: float = POLL_S
    grace_s: float = 15.0
    module: str = PROGRAM
    tls: bool = False
    at_once: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            text = f"A local mesh of {self.nodes} nodes was asked for: give 1 to {NODES_MAX}."
            raise ConfigError(text)
        for setting in self.settings:
            if "=" not in setting:
                raise ConfigError(f"'{setting}' is no setting: write --set section.key=value.")


@dataclass(slots=True, kw_only=True)
class Member:
    """One node of the mesh.

    status: its latest answer. answers: whether it answered the last status request. task: starts
    the daemon, and waits for its end.
    """

    name: str
    address: str
    daemon: Daemon
    status: StatusReply | None = None
    answers: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def state(self) -> str:
        """Return the node's life, or the state of its process if the node does not answer."""
        if not self.daemon.running:
            code = self.daemon.exit_code
            return "not started" if code is None else exit_words(code)
        if self.status is None:
            return "starting"
        return self.status.life if self.answers else "silent"

    @property
    def round(self) -> int:
        return self.status.round if self.status else 0

    @property
    def starting(self) -> bool:
        """Tell whether the daemon runs and has not loaded its model and images yet."""
        status = self.status
        return self.daemon.running and (status is None or status.life == Life.LOADING)

    @property
    def done(self) -> bool:
        """Tell whether the node has finished its rounds, or ended for good."""
        if not self.daemon.running:
            ended = self.task is not None and self.task.done()
            return ended and self.daemon.exit_code is not None
        return self.answers and self.status is not None and self.status.life == Life.FINISHED


class LocalMesh:
    """A mesh of daemons on loopback; an async context manager that ends them all."""

    def __init__(self, settings: MeshSettings, client: Client | None = None) -> None:
        """Set up. client: asks the daemons, and is closed with the mesh; None for a new one."""
        self.settings = settings
        self.events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self.members: dict[str, Member] = {}
        self._client = client
        self.on_event: Callable[[str], None] = lambda _: None
        self._changed = asyncio.Event()
        self._starts = asyncio.Semaphore(settings.at_once)
        self._poller: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._prepare()
        for name in self.members:
            self.launch(name)
        self._poller = asyncio.create_task(self._poll(), name="mesh poll")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Public interface ---------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        assert self._client is not None, "the mesh was started"
        return self._client

    async def history(self, name: str) -> Sequence[Round]:
        return await self.client.history(self.members[name].address)

    async def look(self, name: str) -> StatusReply:
        """Ask a node for its status now; raise Unreachable if it does not answer."""
        return await self.client.status(self.members[name].address)

    def kill(self, name: str) -> None:
        """End a daemon at once (SIGKILL), as a crash would."""
        self.members[name].daemon.signal(signal.SIGKILL)

    def launch(self, name: str) -> None:
        """Start a daemon, also one that has ended, as soon as it is its turn."""
        member = self.members[name]
        member.status, member.answers = None, False
        member.task = asyncio.create_task(self._run(member), name=f"run {name}")

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until a condition on the members holds; raise TimeoutError after timeout_s."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._check()
                await self.change()

    async def change(self) -> None:
        """Wait until all daemons were asked again, or one of them ends."""
        await self._changed.wait()

    async def wait_finished(self, timeout_s: float | None = None) -> list[str]:
        """Wait until every running daemon has finished its rounds; return their names.

        Raise MeshError if no daemon runs any more, or, with the names of slow nodes, after
        timeout_s.
        """
        members = self.members.values()
        try:
            await self.wait_for(lambda: all(member.done for member in members), timeout_s)
        except TimeoutError:
            late = ", ".join(
                f"{member.name} ({member.state}, round {member.round})"
                for member in members
                if not member.done
            )
            raise MeshError(
                f"After {timeout_s:.0f} s these nodes were not through with their rounds: {late}."
            ) from None
        finished = [member.name for member in members if member.daemon.running]
        if not finished:
            first = next(iter(members))
            raise MeshError(
                f"Every daemon of the mesh ended; {first.name} with {first.state}, and its last "
                f"words were: {first.daemon.last_line() or '(none)'}"
            )
        return finished

    async def stop(self) -> None:
        """End every daemon; return when all have ended. Idempotent."""
        for task in self._tasks():
            task.cancel()
        try:
            daemons = [member.daemon for member in self.members.values()]
            await stop(daemons, self.settings.grace_s)
        finally:
            if self._client is not None:
                await self._client.close()
            self._notify()

    # Implementation -----------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise what ended the tasks that ask and start daemons; MeshError after stop()."""
        for task in self._tasks():
            if task.done() and not task.cancelled():
                task.result()
        if self._poller is None or self._poller.done():
            raise MeshError("The mesh is not running.")

    def _tasks(self) -> list[asyncio.Task[None]]:
        tasks = [self._poller, *(member.task for member in self.members.values())]
        return [task for task in tasks if task is not None]

    def _prepare(self) -> None:
        settings = self.settings
        folder = settings.run_dir.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        peers = folder / "peers.yaml"
        width = len(str(settings.nodes))
        members: dict[str, Member] = {}
        for number, port in enumerate(free_ports(settings.nodes), 1):
            name, address = f"node-{number:0{width}d}", f"127.0.0.1:{port}"
            words = ["start", "--peers", str(peers), "--name", name]
            if settings.config is not None:
                words += ["--config", str(settings.config.resolve())]
            for setting in (*self._own_settings(folder / name), *settings.settings):
                words += ["--set", setting]
            daemon = Daemon(name, words, folder / f"{name}.log", settings.module)
            members[name] = Member(name=name, address=address, daemon=daemon)
        self.members.update(members)  # at once, because another thread may show them
        listed = [{"name": member.name, "address": member.address} for member in members.values()]
        content = {"mesh": settings.name, "insecure": not settings.tls, "peers": listed}
        if settings.tls:
            content["mesh_key"] = self._certify(folder)
        peers.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
        if self._client is None:
            self._client = client_of(load_peers(peers), folder / next(iter(members)))
        if FORKS and settings.module == PROGRAM:
            start_server(settings.config, settings.settings)

    def _certify(self, folder: Path) -> str:
        """Give every node a certificate of the mesh key; return the key's public half as text."""
        file = folder / keys.MESH_KEY_FILE
        key = keys.load(file) if file.exists() else keys.create(file)
        root = Authority.root(self.settings.name, key)
        roster = Roster(self.settings.name, key.public_key())
        for name in self.members:
            node = NodeIdentity.create(folder / name)
            node.take_certificate(root.node(name, node.key.public_key()), roster)
        return keys.written(key.public_key())

    def _own_settings(self, state_dir: Path) -> tuple[str, ...]:
        """Return a local mesh's settings: own folder, one core, a common start, few probes."""
        nodes = self.settings.nodes
        own = (f"state_dir={state_dir}", "tuning.threads=1", f"rounds.start.peers={nodes - 1}")
        if nodes <= CROWD * (os.cpu_count() or 1):
            return own
        return (*own, f"rounds.start.timeout_s={START_S * nodes:g}", "membership.preset=wan")

    async def _run(self, member: Member) -> None:
        """Start a daemon when it is its turn, and see how it ends."""
        async with self._starts:
            await member.daemon.start()
            while member.starting:
                await self.change()
        code = await member.daemon.ended()
        member.answers = False
        words = member.daemon.last_line()
        said = f"its last words: {words}" if words else "it said nothing"
        self._tell(f"{member.name} ended with {exit_words(code)}; {said}")
        self._notify()

    async def _poll(self) -> None:
        while True:
            await asyncio.gather(*(self._look(member) for member in self.members.values()))
            self._notify()
            await asyncio.sleep(self.settings.poll_s)

    async def _look(self, member: Member) -> None:
        if not member.daemon.running:
            return
        try:
            status = await self.client.status(member.address)
        except FednodeError:
            member.answers = False
            return
        # Ignore an answer of a daemon that died meanwhile: it is not about its replacement.
        if member.daemon.running:
            member.status, member.answers = status, True

    def _tell(self, text: str) -> None:
        self.events.append(text)
        self.on_event(text)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def fresh_folder(parent: Path, stem: str) -> Path:
    """Make and return parent/stem, or parent/stem-2, -3, ... if that exists."""
    for number in range(1, 10_000):
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise ConfigError(f"'{parent}' is full of old runs: remove some.")
