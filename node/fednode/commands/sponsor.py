"""`fednode sponsor`: let another node of the mesh admit sites, too."""

from __future__ import annotations

import time
from pathlib import Path

import click

from fednode.errors import ConfigError, FednodeError, Unreachable
from fednode.terminal.paths import PATH


@click.command()
@click.argument("site")
@click.option(
    "--mesh-key",
    "key_file",
    type=PATH,
    help="A copy of the mesh key [the one that `found` made here]. With it any member runs this.",
)
def sponsor(site: str, key_file: Path | None) -> None:
    """Let the node SITE invite and admit sites, and renew leases, for a year.

    The command needs the mesh key, so it runs on the founder's machine, or with --mesh-key on the
    machine of any member. SITE must run, unless it is this machine's own node.
    """
    import uvloop

    from fednode.app.admission import keep_right, register_of
    from fednode.app.asking import ask_peers
    from fednode.app.founding import admitting, mesh_key_of, node_here
    from fednode.app.network import client_of, identity_in
    from fednode.identity import lease as leases
    from fednode.observe.status import SPONSOR
    from fednode.transports.address import asked_at

    plan = admitting() if key_file is None else node_here()
    own = identity_in(plan.state, plan.peers.mesh, plan.name)
    key = mesh_key_of(plan, key_file)
    peers, _ = ([], None) if site == plan.name else uvloop.run(ask_peers(plan))
    known = {one.name: (one.id, one.address) for one in register_of(plan.state, own).enrolled()}
    known |= {peer.name: (peer.id, peer.address) for peer in peers if peer.id}
    known[plan.name] = own.id, plan.address
    if site not in known:
        raise ConfigError(f"{plan.name} knows no {site!r}; it knows {', '.join(sorted(known))}.")
    id, address = known[site]
    right = leases.right(key, plan.peers.mesh, site, id, int(time.time()))

    async def give() -> str:
        async with client_of(plan.peers, plan.state) as client:
            return await client.control(asked_at(address, id), SPONSOR, right)

    if site == plan.name:
        keep_right(plan.state, right)
    try:
        click.echo(uvloop.run(give()))
    except FednodeError as fault:
        if site == plan.name and isinstance(fault, Unreachable):
            click.echo(f"{site} may admit sites for another year, from its next start on.")
            return
        raise type(fault)(f"{site} was not told: {fault} Run this again when it runs.") from None
