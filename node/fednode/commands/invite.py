"""`fednode invite`: print the link that admits a site."""

from __future__ import annotations

import click

from fednode.errors import ConfigError

DAYS_MAX = 365


@click.command()
@click.argument("site")
@click.option("--days", default=7, show_default=True, help="How long the link can be used.")
@click.option("--address", "more", multiple=True, help="Another HOST:PORT of this node.")
@click.option("--again", is_flag=True, help="Free the name of a member that lost its key.")
@click.option("--approve", is_flag=True, help="SITE only asks (`fednode requests`).")
@click.option("--revoke", is_flag=True, help="End the links for this site that nobody used.")
def invite(
    site: str, days: int, more: tuple[str, ...], again: bool, approve: bool, revoke: bool
) -> None:
    """Print a link that admits the node of the name SITE, once. Send it to that site alone.

    This node redeems the link while it runs. A new link for a site ends those before it.
    """
    from fednode.admission.words import words_of
    from fednode.app.admission import register_of
    from fednode.app.founding import admitting
    from fednode.app.inviting import link_for
    from fednode.app.network import IDENTITY
    from fednode.identity import keys
    from fednode.identity.identity import Identity
    from fednode.settings.read import named

    site = named("SITE", site)
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"--days is {days}; give 1 to {DAYS_MAX}.")
    plan = admitting()
    identity = Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name)
    register = register_of(plan.state, identity)
    if revoke:
        count = register.tokens.end_links(site)
        click.echo(f"{count} link{'' if count == 1 else 's'} for {site} ended.")
        return
    text = link_for(
        site, plan, identity, register, days=days, more=more, again=again, approve=approve
    )
    click.echo(text)
    words = words_of(keys.read_group(str(plan.peers.mesh_key)))
    then = (
        f"{site} does not join at once: `fednode join` there asks this node, and ends. Then "
        f"`fednode requests` here shows the words of {site}'s key, and after `fednode requests "
        f"admit {site}` the same `fednode join` joins.\n"
    )
    click.echo(
        f"For {site}, to be used once within {days} days: fednode join LINK --data DIR\n"
        f"{then if approve else ''}"
        f"The words of the mesh, which {site} must see, too: {words}",
        err=True,
    )
