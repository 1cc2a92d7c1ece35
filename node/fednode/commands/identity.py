"""`fednode identity`: the key that identifies a node."""

from __future__ import annotations

import os
from pathlib import Path

import click
import uvloop

from fednode.app.network import IDENTITY, identity_in
from fednode.app.reach import reach
from fednode.app.saved import ROOT
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.identity import Identity, valid_until
from fednode.identity.lease import day, disarm
from fednode.settings.read import named
from fednode.storage.disk import lock
from fednode.terminal.groups import Whole
from fednode.terminal.paths import PATH

MESH = click.option("--mesh", required=True, help="Name of the mesh, as in peers.yaml.")
NAMED = click.option("--name", required=True, help="Name of the node, as in peers.yaml.")
STATE = click.option(
    "--state", type=PATH, help="State directory [~/.local/state/fednode/MESH/NAME]."
)


@click.group(cls=Whole)
def identity() -> None:
    """Show, create or replace a node's key. The node's id is the fingerprint of its key."""


def _folder(mesh: str, name: str, state: Path | None) -> Path:
    default = Path.home() / ROOT / named("--mesh", mesh) / named("--name", name)
    return state or default


@identity.command()
@MESH
@NAMED
@STATE
def show(mesh: str, name: str, state: Path | None) -> None:
    """Print a node's id, and the certificate or lease that it presents."""
    own = identity_in(_folder(mesh, name, state), mesh, name)
    click.echo(own.id)
    until = valid_until(own.folder)
    if until:
        click.echo(f"certificate until {until}; `fednode start` renews it")
    lease = own.lease
    if lease is not None:
        click.echo(f"lease of {lease.name!r} in mesh {lease.mesh!r} until {day(lease.expires)}")
    elif own.proof:
        click.echo("it succeeds an older key: put this id into every peers.yaml")


@identity.command()
@MESH
@NAMED
@STATE
def new(mesh: str, name: str, state: Path | None) -> None:
    """Create a node's key before its first start; print the node's line for peers.yaml."""
    folder = _folder(mesh, name, state)
    if (folder / IDENTITY / keys.KEY_FILE).exists():
        raise ConfigError(
            f"{folder / IDENTITY} holds a key already: `fednode identity show` prints its id, and "
            "`fednode identity rotate` replaces it."
        )
    made = Identity(folder / IDENTITY, mesh, name)
    click.echo(f'  - {{name: {name}, address: "HOST:PORT", id: {made.id}}}')


@identity.command()
@MESH
@NAMED
@STATE
def rotate(mesh: str, name: str, state: Path | None) -> None:
    """Replace a node's key by a new key that the old key signs. Stop the node first.

    Peers whose peers.yaml still has the old id accept the new key, once. Put the new id into every
    peers.yaml before you rotate the key again.
    """
    folder = _folder(mesh, name, state)
    own = identity_in(folder, mesh, name)
    descriptor = lock(folder)  # a running node holds it
    try:
        before, after = own.rotate()
    finally:
        os.close(descriptor)
    click.echo(f"{before}\nis succeeded by\n{after}")


@identity.command()
@click.argument("address")
@click.argument("revocation")
@click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
@click.option("--state", type=PATH, help="State directory of the node at ADDRESS.")
def revoke(address: str, revocation: str, peers_path: Path | None, state: Path | None) -> None:
    """Give a REVOCATION (from `fednode introducer revoke`) to the node at ADDRESS.

    The node passes it on to the whole mesh. For nodes that are down now, also add the line to
    `revoked` in peers.yaml.
    """
    make, ((_, where),) = reach(address, peers_path, state)

    async def ask() -> str:
        async with make() as client:
            return await client.control(where, "revoke", disarm(revocation))

    click.echo(uvloop.run(ask()))


@identity.command()
@MESH
@NAMED
@STATE
@click.argument("lease")
def take(mesh: str, name: str, state: Path | None, lease: str) -> None:
    """Store a LEASE (one line of text) that was signed elsewhere, and present it from now on."""
    identity_in(_folder(mesh, name, state), mesh, name).take_lease(disarm(lease))
    click.echo(f"{name} shows this lease from its next connection on")
