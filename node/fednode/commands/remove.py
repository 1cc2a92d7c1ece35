"""`fednode remove`: revoke the key of a site, and tell the mesh."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from fednode.app.client import ask, ask_peers, client_of, place_of
from fednode.app.create import load_mesh_key, node_here
from fednode.app.revoke import Removal, find_removal, revoke
from fednode.errors import Declined, FednodeError, Unreachable
from fednode.terminal.paths import PATH
from fednode.terminal.questions import require_person

NOTHING: Final = "Nothing was done; the site is still a member."


@click.command()
@click.argument("site")
@click.option(
    "--mesh-key",
    "key_file",
    type=PATH,
    help="A copy of the mesh key [the one that `init` made here]. With it any member runs this.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(site: str, key_file: Path | None, yes: bool) -> None:
    """Revoke the key of the node SITE, for good, and let this node tell all others.

    The command needs the mesh key. The name can be invited again. If SITE is a sponsor, it can
    admit nobody any more. The exit code is 1 if you answer no.
    """
    plan = node_here()
    key = load_mesh_key(plan, key_file)
    peers, fault = ask_peers(plan)
    removal = find_removal(plan, site, peers)
    if not yes:
        _ask(removal)
    proof = revoke(plan, removal, key)
    if removal.admitted:
        click.echo(_stays(removal))
    if isinstance(fault, Unreachable):
        click.echo(f"{site} is revoked; {plan.name} tells the others at its next start.")
        return
    try:
        make = partial(client_of, plan.peers, plan.state)
        ask(make, lambda client: client.control(place_of(plan), "revoke", proof))
        click.echo(f"{site} is revoked, and {plan.name} tells everyone.")
    except FednodeError as failed:
        text = f"{site} is revoked, and {plan.name} was not told: {failed} Run this again."
        raise type(failed)(text) from None


def _stays(removal: Removal) -> str:
    names = ", ".join(removal.admitted)
    return f"{removal.site} had admitted {names}: nodes that have met these sites go on with them."


def _ask(removal: Removal) -> None:
    """Say what follows of a removal and ask; raise Declined for no."""
    site = removal.site
    require_person(f"remove {site}")
    click.echo(f"The key of {site} is revoked for good: no node takes anything from it any more.")
    if removal.admitted:
        click.echo(_stays(removal))
    click.echo(f"{site} can come back only by a new link (`fednode invite {site}`).")
    try:
        if click.confirm(f"Remove {site} from the mesh?"):
            return
    except click.Abort:
        raise click.Abort from KeyboardInterrupt(NOTHING)
    raise Declined(NOTHING)
