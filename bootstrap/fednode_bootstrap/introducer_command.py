"""`fednode introducer`: enrol nodes that peers.yaml does not list."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click
import uvloop

from fednode.settings.read import named
from fednode.terminal.groups import Whole
from fednode.terminal.paths import PATH
from fednode.terminal.stop import call_at_end
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.invite import invite as written
from fednode_bootstrap.serving import serve

STATE = click.option("--state", type=PATH, required=True, help="Folder of the mesh key.")
MESH = click.option("--mesh", "mesh_name", required=True, help="Name of the mesh.")


@click.group(cls=Whole)
def introducer() -> None:
    """Enrol nodes that peers.yaml does not list: give their keys leases on names, for tokens."""


@introducer.command()
@STATE
@MESH
@click.option("--listen", default="127.0.0.1:7099", show_default=True, help="Where newcomers call.")
@click.option(
    "--until",
    default=0,
    help="End once so many nodes hold leases and nobody has called for half a minute.",
)
@click.option("--relay", is_flag=True, help="Connect nodes that take no connections, too.")
def run(state: Path, mesh_name: str, listen: str, until: int, relay: bool) -> None:
    """Serve newcomers until SIGTERM, SIGHUP or Ctrl-C; print enrolments and refusals, counted."""
    book = Roster(state, named("--mesh", mesh_name))

    async def main() -> None:
        stop = asyncio.Event()
        call_at_end(lambda _: stop.set())
        said = f"introducer of {mesh_name} at "
        ready = lambda at: click.echo(said + at)  # noqa: E731
        say = lambda text: click.echo(f"{time.strftime('%H:%M:%S')} {text}")  # noqa: E731
        await serve(book, listen, stop, ready, until, say=say, relay=relay)
        if not stop.is_set():
            click.echo(f"{book.settled()} nodes hold leases; nothing is left to do")

    click.echo(f"mesh_key: {book.mesh_key}")
    uvloop.run(main())


@introducer.command()
@STATE
@click.option("--peers", "template", type=PATH, required=True, help="peers.yaml without mesh_key.")
@click.option("--out", type=PATH, required=True, help="Folder of the files.")
@click.option("--relay", is_flag=True, help="List the introducer's port under `relays`.")
@click.option("--apart", is_flag=True, help="Give each node a folder of its own, named after it.")
def invite(state: Path, template: Path, out: Path, relay: bool, apart: bool) -> None:
    """Write the files that nodes need to enrol: peers.yaml with the mesh key, and tokens.

    Each node in peers.yaml gets a file token-NAME, which enrols that name once. The file page-token
    is for the nodes' pages. If the command runs again, it keeps existing tokens; `fednode
    introducer token` makes new ones. With --apart a node's folder holds peers.yaml, its own token
    in the file token, and page-token; then no node needs to read another node's token.
    """
    for name in written(state, template, out, relay, apart):
        click.echo(out / name)


@introducer.command()
@STATE
@MESH
@click.option("--name", default="", help="Only for a node of this name.")
@click.option("--uses", default=1, show_default=True, help="How many nodes it enrols.")
def token(state: Path, mesh_name: str, name: str, uses: int) -> None:
    """Print a new token."""
    click.echo(Roster(state, named("--mesh", mesh_name)).tokens.new(name, uses))


@introducer.command()
@STATE
@MESH
@click.option("--name", required=True, help="Name of the node.")
def free(state: Path, mesh_name: str, name: str) -> None:
    """Free the name of a node whose key is lost, and print a token for its new key.

    Peers accept the lost key's lease until the new key enrols. If another person may have the key,
    use `revoke`.
    """
    click.echo(Roster(state, named("--mesh", mesh_name)).free(name))


@introducer.command()
@STATE
@MESH
def key(state: Path, mesh_name: str) -> None:
    """Print the line of peers.yaml with the mesh key; create the key if there is none."""
    click.echo(f"mesh_key: {Roster(state, named('--mesh', mesh_name)).mesh_key}")


@introducer.command()
@STATE
@MESH
@click.option("--name", required=True, help="Name of the node.")
@click.option("--id", "node_id", help="Its id [that of the enrolled node of this name].")
def revoke(state: Path, mesh_name: str, name: str, node_id: str | None) -> None:
    """Revoke a node's key; print the line for `revoked` in peers.yaml."""
    roster = Roster(state, named("--mesh", mesh_name))
    click.echo(roster.revoke(name, roster.id_for(name) if node_id is None else node_id))
