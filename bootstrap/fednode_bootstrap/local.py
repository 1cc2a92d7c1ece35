"""`fednode mesh`: run a local mesh with a live table until it has finished or is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from fednode.observe.client import Client
from fednode.terminal import show
from fednode.terminal.stop import Interrupted, interruptible, until
from fednode_bootstrap import live
from fednode_bootstrap.mesh import LocalMesh, MeshSettings, fresh_folder
from fednode_bootstrap.watch import View, accuracies, summary

RUNS: Final = Path("runs")
TELLS: Final = "`fednode eval --state {folder}/NODE` says what the mesh brings a node"


async def run(
    settings: MeshSettings,
    console: Console,
    client: Client | None = None,
    keep: bool = False,
    stay: bool = False,
) -> int:
    """Run a mesh; return the exit code. Ctrl-C is an ordinary way to end it.

    Args:
        settings: its run_dir is kept, and resumed if it holds state; RUNS stands for a new folder
            in RUNS, which is removed if all daemons ended well, unless `keep` is set
        client: as LocalMesh takes it
        stay: keep serving after the last round, until told to stop
    """
    made = settings.run_dir == RUNS
    if made:
        settings = replace(settings, run_dir=fresh_folder(RUNS, "mesh"))
    mesh, folder = LocalMesh(settings, client), settings.run_dir
    ended_well = False
    try:
        ended = await _run(mesh, stay, console)
        if not ended:
            again = "" if made else " The same command goes on from here."
            console.print(f"All daemons have ended.{again}")
        members = mesh.members.values()
        ended_well = all(member.daemon.exit_code == 0 for member in members)
        show.require_merged([member.status for member in members if member.status is not None])
    finally:
        if made and not keep and ended_well:
            shutil.rmtree(folder)
        else:
            console.print(f"State and logs are in {folder}", soft_wrap=True, highlight=False)
            console.print(TELLS.format(folder=folder), soft_wrap=True, highlight=False)
    return 0


async def _run(mesh: LocalMesh, stay: bool, console: Console) -> bool:
    """Show a mesh until all rounds are done; return False if it was interrupted."""
    nodes, folder = mesh.settings.nodes, mesh.settings.run_dir
    view = View(console, lambda: f"{nodes} daemons in {folder}; Ctrl-C ends them all")

    async def work() -> None:
        async with shown(mesh, view):
            await mesh.wait_finished()
            if stay:
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
            return False
    return True


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
