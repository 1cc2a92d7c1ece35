"""`fednode remove`: revoke the key of a site, and tell the mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from fednode.errors import Declined, FednodeError, Unreachable
from fednode.terminal.questions import require_person

if TYPE_CHECKING:
    from fednode.app.removing import Removable

NOTHING: Final = "Nothing was done; the site is still a member."


@click.command()
@click.argument("site")
@click.option(
    "--all", "everything", is_flag=True, help="Also end the leases that SITE gave to others."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(site: str, everything: bool, yes: bool) -> None:
    """Revoke the key of the node SITE, for good, and let this node tell all others.

    With the mesh key, on the founder's machine, any site can be removed. A sponsor removes the
    sites that it admitted. The name can be invited again. If SITE was a sponsor, the leases that
    it gave stay, and it can give no more. The exit code is 1 if you answer no.
    """
    import uvloop

    from fednode.app.asking import ask_peers
    from fednode.app.founding import admitting
    from fednode.app.network import client_of, place_of
    from fednode.app.removing import removable
    from fednode.app.removing import remove as revoke
    from fednode.identity.lease import disarm

    plan = admitting()
    peers, fault = uvloop.run(ask_peers(plan))
    found = removable(plan, site, peers)
    if not yes:
        _ask(found, everything)
    removed = revoke(found, everything)

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
        uvloop.run(tell())
        click.echo(f"{site} is revoked, and {plan.name} tells everyone.")
    except FednodeError as failed:
        text = f"{site} is revoked, and {plan.name} was not told: {failed} Run this again."
        raise type(failed)(text) from None


def _ask(found: Removable, everything: bool) -> None:
    """Say what follows of a removal and ask; raise Declined for no."""
    site, given = found.site, sorted(found.given)
    require_person(f"remove {site}")
    click.echo(f"The key of {site} is revoked for good: no node takes anything from it any more.")
    if given and everything:
        click.echo(f"{', '.join(given)} had a lease from {site} and will need new links.")
    elif given:
        click.echo(f"{site} can admit nobody any more. {', '.join(given)}, whom it admitted, stay.")
    click.echo(f"{site} can come back only by a new link (`fednode invite {site}`).")
    try:
        if click.confirm(f"Remove {site} from the mesh?"):
            return
    except click.Abort:
        raise click.Abort from KeyboardInterrupt(NOTHING)
    raise Declined(NOTHING)
