"""`fednode mesh`: run a local mesh with a live table until it has finished or is stopped."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from fednode import registry
from fednode.observe.client import Client
from fednode.terminal import show
from fednode.terminal.stop import Interrupted, until_stopped
from fednode_bootstrap import view
from fednode_bootstrap.mesh import LocalMesh, MeshSettings, fresh_folder

RUNS: Final = Path("runs")
EARLY: Final = (
    "Nodes of gossip wait for no other, and may end before a message of a peer arrives: give them "
    "more rounds, or a rounds.min_interval_s. "
)


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
    members = mesh.members.values()
    ended_well = False
    try:
        try:
            await until_stopped(_follow(mesh, stay, console), console.print)
        except Interrupted:
            again = "" if made else " The same command goes on from here."
            console.print(f"All daemons have ended.{again}")
        replies = [member.status for member in members if member.status is not None]
        kinds = (registry.policy(reply.policy) for reply in replies if reply.policy)
        early = EARLY if any("async" in kind.modes for kind in kinds) else ""
        show.require_merged(replies, f"{early}Their logs in {folder} say more.")
        ended_well = all(member.daemon.exit_code == 0 for member in members)
    finally:
        if made and not keep and ended_well:
            shutil.rmtree(folder)
        else:
            compare = f"`fednode eval --state {folder}/NODE` says what the mesh brings a node"
            for line in (f"State and logs are in {folder}", compare):
                console.print(line, soft_wrap=True, highlight=False)
    return 0


async def _follow(mesh: LocalMesh, stay: bool, console: Console) -> None:
    """Show a mesh until all rounds are done, and its figures at the end."""
    nodes, folder = mesh.settings.nodes, mesh.settings.run_dir
    headline = f"{nodes} daemons in {folder}; Ctrl-C ends them all"
    members = mesh.members.values()
    async with view.shown(mesh, console, lambda: headline):
        await mesh.wait_finished()
        if stay:
            console.print("All rounds are done; the nodes keep serving until Ctrl-C.")
            await asyncio.Event().wait()
        figures: list[RenderableType] = [view.table(members)]
        if not console.is_terminal:
            figures = [Text(line) for line in (view.summary(members), *view.accuracies(members))]
    for part in figures:
        console.print(part, soft_wrap=True, highlight=False)
