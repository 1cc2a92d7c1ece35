"""`fednode sponsor`: let another node of the mesh admit sites, too."""

from __future__ import annotations

import time

import click

from fednode.errors import ConfigError, FednodeError


@click.command()
@click.argument("site")
def sponsor(site: str) -> None:
    """Let the node SITE invite and admit sites, and renew leases, for a year.

    The command needs the mesh key, so it runs on the founder's machine. SITE must run. With this
    node's own name the command renews its own right.
    """
    import uvloop

    from fednode.app.admission import keep_right, register_of
    from fednode.app.asking import ask_peers
    from fednode.app.founding import admitting, mesh_key_of
    from fednode.app.network import IDENTITY, client_of
    from fednode.identity import lease as leases
    from fednode.identity.identity import Identity
    from fednode.observe.status import SPONSOR
    from fednode.transports.address import asked_at

    plan = admitting()
    register = register_of(plan.state, Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name))
    key = mesh_key_of(plan)
    peers, _ = ([], None) if site == plan.name else uvloop.run(ask_peers(plan))
    known = {node.name: (node.id, node.address) for node in register.enrolled()}
    known |= {peer.name: (peer.id, peer.address) for peer in peers if peer.id}
    if site not in known:
        raise ConfigError(f"{plan.name} knows no {site!r}; it knows {', '.join(sorted(known))}.")
    id, address = known[site]
    right = leases.right(key, plan.peers.mesh, site, id, int(time.time()))
    if site == plan.name:
        keep_right(plan.state, right)
        click.echo(f"{site} may admit sites for another year.")
        return

    async def give() -> str:
        async with client_of(plan.peers, plan.state) as client:
            return await client.control(asked_at(address, id), SPONSOR, right)

    try:
        click.echo(uvloop.run(give()))
    except FednodeError as fault:
        raise type(fault)(f"{site} was not told: {fault} Run this again when it runs.") from None
