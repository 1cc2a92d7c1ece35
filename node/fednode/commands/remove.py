"""`fednode remove`: revoke the key of a site, and tell the mesh."""

from __future__ import annotations

import click

from fednode.errors import FednodeError, Unreachable


@click.command()
@click.argument("site")
@click.option(
    "--all", "everything", is_flag=True, help="Also end the leases that SITE gave to others."
)
def remove(site: str, everything: bool) -> None:
    """Revoke the key of the node SITE, for good, and let this node tell all others.

    With the mesh key, on the founder's machine, any site can be removed. A sponsor removes the
    sites that it admitted. The name can be invited again. If SITE was a sponsor, the leases that
    it gave stay, and it can give no more.
    """
    import uvloop

    from fednode.app.asking import ask_peers
    from fednode.app.founding import admitting
    from fednode.app.network import client_of, place_of
    from fednode.app.removing import remove as revoke
    from fednode.identity.lease import disarm

    plan = admitting()
    peers, fault = uvloop.run(ask_peers(plan))
    removed = revoke(plan, site, peers, everything)

    async def tell() -> str:
        async with client_of(plan.peers, plan.state) as client:
            return await client.control(place_of(plan), "revoke", disarm(removed.line))

    if removed.stay:
        click.echo(f"{site} had admitted {', '.join(removed.stay)}: these sites stay.")
    if removed.out:
        click.echo(f"{', '.join(removed.out)} had a lease from {site} and need new links.")
    if isinstance(fault, Unreachable):
        click.echo(f"{site} is revoked; {plan.name} tells the others at its next start.")
        return
    try:
        click.echo(uvloop.run(tell()))
    except FednodeError as failed:
        text = f"{site} is revoked, and {plan.name} was not told: {failed} Run this again."
        raise type(failed)(text) from None
