"""`fednode remove`: revoke the key of a site, and tell the mesh."""

from __future__ import annotations

from pathlib import Path

import click

from fednode.app.client import ask_peers, control, place_of
from fednode.app.create import load_mesh_key, node_here
from fednode.app.revoke import Removal, find_removal, revoke
from fednode.errors import FednodeError, Unreachable
from fednode.terminal.paths import PATH
from fednode.terminal.questions import confirm


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
        control(plan, place_of(plan), "revoke", proof)
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
    click.echo(f"The key of {site} is revoked for good: no node takes anything from it any more.")
    if removal.admitted:
        click.echo(_stays(removal))
    click.echo(f"{site} can come back only by a new link (`fednode invite {site}`).")
    refusal = "Nothing was done; the site is still a member."
    confirm(f"Remove {site} from the mesh?", f"remove {site}", refusal)
