"""`fednode invite`: print the link that admits a site."""

from __future__ import annotations

import sys

import click

from fednode.errors import ConfigError

DAYS_MAX = 365


@click.command()
@click.argument("site")
@click.option("--days", default=7, show_default=True, help="How long the link can be used.")
@click.option("--address", "more", multiple=True, help="Another HOST:PORT of this node.")
@click.option("--again", is_flag=True, help="Free the name of a member that lost its key.")
@click.option("--approve", is_flag=True, help="Admit only after `fednode admit SITE`.")
@click.option("--revoke", is_flag=True, help="End the links for this site that nobody used.")
def invite(
    site: str, days: int, more: tuple[str, ...], again: bool, approve: bool, revoke: bool
) -> None:
    """Print a link that admits the node of the name SITE, once. Send it to that site alone.

    This node redeems the link while it runs. A new link for a site ends those before it.
    """
    from fednode.admission import link as links
    from fednode.admission.words import words_of
    from fednode.app.admission import register_of
    from fednode.app.founding import admitting
    from fednode.app.network import IDENTITY
    from fednode.identity import keys
    from fednode.identity.identity import Identity
    from fednode.settings.peers import address_faults
    from fednode.settings.read import named
    from fednode.transports.address import RELAY

    site = named("SITE", site)
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"--days is {days}; give 1 to {DAYS_MAX}.")
    plan = admitting()
    identity = Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name)
    register = register_of(plan.state, identity)
    if revoke:
        count = register.revoke_links(site)
        click.echo(f"{count} link{'' if count == 1 else 's'} for {site} ended.")
        return
    addresses = [address for address in (plan.address, *more) if address != RELAY]
    faults = [text for at in addresses for text in address_faults("--address", site, at, False)]
    if faults or not 1 <= len(addresses) <= links.ADDRESSES_MAX:
        few = f"give 1 to {links.ADDRESSES_MAX} addresses of this node (--address HOST:PORT)."
        raise ConfigError("\n".join(faults) or few)
    if any(node.name == site for node in register.enrolled()):
        if not again:
            raise ConfigError(
                f"{site!r} is a member already: choose another name, or give --again if that site "
                "has lost its key."
            )
        register.free(site)
    made = links.Link(
        mesh=plan.peers.mesh,
        mesh_key=str(plan.peers.mesh_key),
        maker=links.half_of(identity.id),
        token=register.link_token(site, days, again, approve),
        name=site,
        addresses=tuple(addresses),
        relays=plan.peers.relays[: links.RELAYS_MAX],
    )
    text = links.written(made)
    if sys.stdout.isatty():
        import segno

        segno.make(text, error="l").terminal(compact=True)
    click.echo(text)
    words = words_of(keys.read_group(made.mesh_key))
    click.echo(
        f"For {site}, to be used once within {days} days: fednode join LINK --data DIR\n"
        f"The words of the mesh, which {site} must see, too: {words}",
        err=True,
    )
