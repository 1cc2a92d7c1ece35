"""`fednode mesh`: run a local mesh with a live table until it has finished or is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from fednode.observe.client import Client
from fednode.terminal import show
from fednode.terminal.stop import Interrupted, interruptible, until
from fednode_bootstrap import live
from fednode_bootstrap.mesh import POLL_S, LocalMesh, MeshSettings, fresh_folder
from fednode_bootstrap.process import PROGRAM
from fednode_bootstrap.watch import View, accuracies, summary

RUNS: Final = Path("runs")
TELLS: Final = "`fednode eval --state {folder}/NODE` says what the mesh brings a node"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """The options of `fednode mesh`.

    Attributes:
        run_dir: kept, and resumed if it holds state; None makes a new folder under runs/, which is
            removed if all daemons ended well, unless `keep` is set
        rounds, policy: override `settings`
        stay: keep serving after the last round, until told to stop
        tls: mutual TLS between the nodes
    """

    nodes: int = 4
    config: Path | None = None
    settings: tuple[str, ...] = ()
    rounds: int | None = None
    policy: str | None = None
    run_dir: Path | None = None
    keep: bool = False
    stay: bool = False
    tls: bool = False
    poll_s: float = POLL_S
    module: str = PROGRAM

    def mesh(self, folder: Path) -> MeshSettings:
        """Return the settings of the mesh in a folder."""
        more = [] if self.rounds is None else [f"rounds.max={self.rounds}"]
        more += [] if self.policy is None else [f"policy.name={self.policy}"]
        return MeshSettings(
            run_dir=folder,
            nodes=self.nodes,
            config=self.config,
            settings=(*self.settings, *more),
            poll_s=self.poll_s,
            module=self.module,
            tls=self.tls,
        )


async def run(options: LocalOptions, client: Client | None, console: Console) -> int:
    """Run a mesh; return the exit code. Ctrl-C is an ordinary way to end it.

    client: as LocalMesh takes it.
    """
    options.mesh(Path())  # checks the options before a folder is made
    made = options.run_dir is None
    folder = fresh_folder(RUNS, "mesh") if options.run_dir is None else options.run_dir
    mesh = LocalMesh(options.mesh(folder), client)
    ended_well = False
    try:
        await _run(mesh, options, console)
        members = mesh.members.values()
        ended_well = all(member.daemon.exit_code == 0 for member in members)
        show.require_merged([member.status for member in members if member.status is not None])
    finally:
        if made and not options.keep and ended_well:
            shutil.rmtree(folder)
        else:
            console.print(f"State and logs are in {folder}", soft_wrap=True, highlight=False)
            console.print(TELLS.format(folder=folder), soft_wrap=True, highlight=False)
    return 0


async def _run(mesh: LocalMesh, options: LocalOptions, console: Console) -> None:
    folder = mesh.settings.run_dir
    view = View(console, lambda: f"{options.nodes} daemons in {folder}; Ctrl-C ends them all")

    async def work() -> None:
        async with shown(mesh, view):
            await mesh.wait_finished()
            if options.stay:
                console.print("All rounds are done; the nodes keep serving until Ctrl-C.")
                await asyncio.Event().wait()
            final = live.table(view.seen(mesh)) if console.is_terminal else summary(mesh)
            lines = [] if console.is_terminal else accuracies(mesh)
        console.print(final, soft_wrap=True, highlight=False)
        for line in lines:
            console.print(Text(line), soft_wrap=True)

    with interruptible(console.print) as stop:
        try:
            await until(work(), stop)
        except Interrupted:
            again = "" if options.run_dir is None else " The same command goes on from here."
            console.print(f"All daemons have ended.{again}")


@contextlib.asynccontextmanager
async def shown(mesh: LocalMesh, view: View) -> AsyncIterator[LocalMesh]:
    """Run a mesh with a view that follows it."""
    mesh.on_event = view.event
    with view:
        async with mesh:
            follower = asyncio.create_task(view.follow(mesh), name="view")
            try:
                yield mesh
            finally:
                follower.cancel()
                await asyncio.wait({follower})
