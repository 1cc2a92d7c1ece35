"""`fednode leave`: let a node say goodbye, and with --forget delete what it has of the mesh."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.app.reach import PEERS, Make, reach
from fednode.errors import ConfigError, Declined, StateError
from fednode.terminal.paths import PATH
from fednode.terminal.questions import require_person

STOPS_S: Final = 30.0
"""Longest time that a node takes to stop after its goodbye."""
EVERY_S: Final = 0.1


@click.command()
@click.argument("address")
@click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
@click.option("--state", type=PATH, help="Its state directory, where the mesh speaks TLS.")
@click.option("--forget", is_flag=True, help="Delete its key, lease and state, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def leave(
    address: str, peers_path: Path | None, state: Path | None, forget: bool, yes: bool
) -> None:
    """Let the node at ADDRESS say goodbye to its peers.

    With --forget its key, its lease, what it learned and its privacy account are deleted
    afterwards, also if the node does not run. Run this on the node's own machine.
    """
    if yes and not forget:
        raise ConfigError("--yes answers the question of --forget: give both, or leave it out.")
    folder = _state_of(address, peers_path, state) if forget else state
    make, ((_, where),) = reach(address, peers_path, folder)
    if folder is None or not forget:
        click.echo(uvloop.run(_goodbye(make, where, None)))
        return
    _forget(folder, make, where, yes)


def _state_of(address: str, peers_path: Path | None, state: Path | None) -> Path:
    """Return the state directory of the node at an address; raise StateError if it is not here."""
    from fednode.app.saved import ROOT, find
    from fednode.settings.peers import load_peers

    if state is None and ":" not in address:
        peers = load_peers(peers_path or PEERS)
        named = Path.home() / ROOT / peers.mesh / address
        folder = named if named.is_dir() else find(Path(address))
    else:
        folder = find(state)
    if not folder.is_dir():
        raise StateError(f"There is no state directory {folder}: give another with --state.")
    return folder


def _forget(folder: Path, make: Make, where: str, yes: bool) -> None:
    from fednode.commands.reset import ACCOUNT, LOCK, WHOLE, delete, found_in
    from fednode.identity.keys import MESH_KEY_FILE

    doomed = found_in(folder, WHOLE)
    if not doomed:
        raise StateError(f"{folder} holds nothing of a node: give another with --state.")
    settings = _settings_of(folder)
    if not yes and not _confirmed(folder, doomed):
        raise Declined("Nothing was done; the node is still a member.")
    descriptor = uvloop.run(_left(folder, make, where))
    try:
        doomed = found_in(folder, WHOLE)  # a node that stops adds files, and takes some away
        delete(doomed)
    finally:
        os.close(descriptor)
    (folder / LOCK).unlink()
    names = [path.name for path in doomed]
    click.echo(
        f"Deleted from {folder}: {', '.join(names)}. This machine has no key and no lease of this "
        "node any more."
    )
    if ACCOUNT in names:
        click.echo("The account of the privacy that the node spent is gone, too.")
    stays = [f"the settings in {settings}"] if settings else []
    mesh_key = folder.parent / MESH_KEY_FILE
    if mesh_key.exists():
        stays.append(f"the mesh key, {mesh_key}, whose holder decides who is a member")
    stays += [str(path) for path in sorted(folder.iterdir())]
    stays.append("all that other nodes received")
    click.echo(f"What stays: {'; '.join(stays)}.")
    if settings:
        click.echo(
            f"To join again: `fednode join LINK` in {Path(settings).parent}, with a new link. It "
            "writes new settings, and keeps these beside them as node.yaml.before."
        )
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):
            empty.rmdir()


def _settings_of(folder: Path) -> str:
    """Return where node.yaml and peers.yaml of a node lie; "" if nobody noted it."""
    from fednode.app.admission import FOLDER
    from fednode.app.founding import FILES

    note = folder / FOLDER / FILES
    return note.read_text(encoding="utf-8").strip() if note.exists() else ""


def _confirmed(folder: Path, doomed: list[Path]) -> bool:
    from fednode.app.admission import right_of

    require_person("delete")
    click.echo(f"In {folder}: {', '.join(path.name for path in doomed)}")
    if right_of(folder):
        click.echo(
            "This node admits sites. If no other node does (`fednode sponsor`), nobody can join "
            "any more, and no lease is renewed. `fednode remove` works here no more."
        )
    click.echo("To join again, the node will need a new link (`fednode invite SITE --again`).")
    return click.confirm("Leave the mesh, and delete these for good?")


async def _left(folder: Path, make: Make, where: str) -> int:
    """Let a node leave if it runs, and wait for its end; return what holds its lock."""
    from fednode.storage.disk import lock

    with contextlib.suppress(StateError):
        descriptor = lock(folder)
        click.echo("The node does not run, so nobody is told; the others see it as dead.")
        return descriptor
    click.echo(await _goodbye(make, where, folder))
    end = asyncio.get_running_loop().time() + STOPS_S
    while True:
        try:
            return lock(folder)
        except StateError as fault:
            if asyncio.get_running_loop().time() > end:
                raise StateError(f"Nothing was deleted. {fault}") from fault
        await asyncio.sleep(EVERY_S)


async def _goodbye(make: Make, where: str, folder: Path | None) -> str:
    """Let a node leave; raise ConfigError if it is not the one of a state directory."""
    async with make() as client:
        if folder is not None:
            known, there = _name_in(folder), (await client.status(where)).name
            if known != there:
                raise ConfigError(
                    f"{folder} is of the node {known!r}, and {there!r} answers at {where}: give "
                    "that node's state directory with --state."
                )
        return await client.control(where, "leave")


def _name_in(folder: Path) -> str:
    """Return the name of the node of a state directory."""
    from fednode.settings.read import read_yaml
    from fednode.storage.store import SETTINGS

    kept = folder / SETTINGS
    return str(read_yaml(kept).tree.get("name", "")) if kept.exists() else folder.name
