"""`fednode remove`: revoke the key of a site, and tell the mesh."""

from __future__ import annotations

import click

from fednode.errors import ConfigError, Unreachable


@click.command()
@click.argument("site")
def remove(site: str) -> None:
    """Revoke the key of the node SITE, for good, and let this node tell all others.

    The command needs the mesh key, so it runs on the founder's machine. The name can be invited
    again. If SITE was a sponsor, the sites that it admitted need new links, too.
    """
    import uvloop

    from fednode.admission.register import Register
    from fednode.app.admission import FOLDER
    from fednode.app.founding import admitting, mesh_key_of
    from fednode.app.network import client_of
    from fednode.identity import lease as leases
    from fednode.identity.lease import disarm

    plan = admitting()
    key = mesh_key_of(plan)
    register = Register(plan.state / FOLDER, plan.peers.mesh, lambda one: leases.sign(key, one))
    known = {node.name: node for node in register.enrolled()}
    if site not in known or site == plan.name:
        others = ", ".join(sorted(set(known) - {plan.name})) or "nobody"
        raise ConfigError(f"{site!r} cannot be removed; {plan.name} has admitted {others}.")
    line = register.revoke(site, known[site].id)
    register.tokens.end_links(site)

    async def tell() -> str:
        async with client_of(plan.peers, plan.state) as client:
            return await client.control(plan.address, "revoke", disarm(line))

    try:
        click.echo(uvloop.run(tell()))
    except Unreachable:
        click.echo(f"{site} is revoked; {plan.name} tells the others at its next start.")
