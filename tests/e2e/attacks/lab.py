"""Daemons over TLS for `probes.py`, the member key of an attacker, and what became of attacks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any, Final

from fednode.app.client import client_of
from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode.settings.peers import load_peers
from fednode.transports.ports import free_ports
from fednode_bootstrap.daemon import Daemon, stop
from tests.contract.faults import pause
from tests.unit.identity.people import SmallMesh

MESH: Final = "probes"
HOSTILE: Final = "d"
GUARD_S: Final = 180.0
ROUNDS: Final = (
    *("--set", "rounds.mode=sync", "--set", "rounds.max=0", "--set", "rounds.deadline_s=5"),
    *("--set", "policy.name=promptfl", "--set", "tuning.threads=1"),
)
CLOSED_FORM: Final = ("--set", "tuning.kind=closed-form", "--set", "rounds.min_interval_s=0.2")


class Lab:
    """Daemons that run, and the member key of an attacker, which runs none."""

    def __init__(self, folder: Path, names: str = "ab", settings: tuple[str, ...] = ()) -> None:
        self.folder, self.names = folder, names
        self.settings = (*ROUNDS, "--set", f"rounds.start.peers={len(names) - 1}", *settings)
        ports = free_ports(len(names) + 1)
        self.at = {
            name: f"127.0.0.1:{port}" for name, port in zip((*names, HOSTILE), ports, strict=True)
        }
        mesh = self.signed = SmallMesh(MESH)
        lines = [f"mesh: {MESH}", f"mesh_key: {mesh.mesh_key_text}", "peers:"]
        for name, at in self.at.items():
            mesh.write(folder / name, name)
            lines.append(f"  - {{name: {name}, address: '{at}'}}")
        (folder / "peers.yaml").write_text("\n".join(lines) + "\n")
        self.daemons: dict[str, Daemon] = {}
        self.wrong = 0
        self._client: Client

    async def __aenter__(self) -> Lab:
        peers = load_peers(self.folder / "peers.yaml")
        self._client = client_of(peers, self.folder / self.names[0], 10.0)
        for name in self.names:
            where = ("--peers", str(self.folder / "peers.yaml"), "--name", name)
            state = ("--state", str(self.folder / name))
            words = ("start", *where, *state, *self.settings)
            self.daemons[name] = Daemon(name, words, self.folder / f"{name}.log")
            await self.daemons[name].start()
        await self.rounds(2)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await stop(tuple(self.daemons.values()), 15.0)

    async def status(self, name: str = "a") -> Any:
        """Ask a node for its status, always over the same connection."""
        return await self._client.status(self.at[name])

    async def revoke(self, name: str) -> None:
        """Let node a revoke a key."""
        await self._client.control(self.at["a"], "revoke", self.signed.revocation(name))

    async def rounds(self, more: int, seconds: float = GUARD_S) -> None:
        """Wait until node a ran some more rounds; raise TimeoutError if it does not."""
        wanted = None
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(FednodeError):
                    number = (await self.status()).round
                    wanted = number + more if wanted is None else wanted
                    if number >= wanted:
                        return
                await pause(0.2)

    def say(self, what: str, found: object, *, fine: bool) -> None:
        """Print what became of an attack."""
        self.wrong += not fine
        print(f"{'' if fine else 'WRONG '}{what}: {found}", flush=True)

    def memory(self, name: str = "a") -> tuple[float, float]:
        """Return the MiB of resident memory of a daemon, now and at most."""
        text = Path(f"/proc/{self.daemons[name].pid}/status").read_text()
        now, most = (re.search(rf"{key}:\s+(\d+)", text) for key in ("VmRSS", "VmHWM"))
        assert now is not None
        assert most is not None
        return int(now[1]) / 1024, int(most[1]) / 1024
