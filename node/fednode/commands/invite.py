"""`fednode invite`: admit sites by a link, decide on sites that wait, or issue folders."""

from __future__ import annotations

from pathlib import Path

import click

from fednode.app.create import load_mesh_key, node_here
from fednode.app.invite import DAYS, issue, link_for, settled
from fednode.app.plan import NodePlan
from fednode.commands.init import addresses_of
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.enrolment.words import words_of
from fednode.errors import ConfigError
from fednode.identity.certificates import Authority
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import day
from fednode.terminal.options import PATH
from fednode.transports.address import RELAY


@click.command()
@click.argument("sites", nargs=-1, metavar="[SITE]")
@click.option("--approve", is_flag=True, help="SITE waits until you accept its key.")
@click.option("--list", "listing", is_flag=True, help="List invitations, and sites that wait.")
@click.option("--accept", metavar="SITE", help="Accept the key of SITE, which waits.")
@click.option("--refuse", metavar="SITE", help="End the link of SITE, which is no member yet.")
@click.option(
    "--out",
    type=PATH,
    help="Instead: write a folder into this one for each NAME[=HOST:PORT], with key and "
    "certificate; a NAME alone is reached through relays.",
)
def invite(
    sites: tuple[str, ...],
    approve: bool,
    listing: bool,
    accept: str | None,
    refuse: str | None,
    out: Path | None,
) -> None:
    """Print a link that admits the node of the name SITE, once. Send it to that site alone.

    This node redeems the link while it runs. A new link for a site ends the one before it. With
    --approve compare the words of the key by phone (--list shows them) before you --accept it.
    """
    if sum((bool(sites), listing, accept is not None, refuse is not None)) != 1:
        raise ConfigError("Give one SITE, or one of --list, --accept SITE and --refuse SITE.")
    if out is not None:
        _issue(sites, out)
        return
    plan = node_here(admits=True)
    ledger = Ledger(plan.state / FOLDER)
    if listing:
        _list(ledger)
    elif accept is not None:
        ledger.settle(accept, good=True)
        click.echo(settled(accept, good=True))
    elif refuse is not None:
        ledger.settle(refuse, good=False)
        click.echo(settled(refuse, good=False))
    elif len(sites) > 1:
        raise ConfigError(f"{len(sites)} names are given: make a link for each SITE.")
    else:
        link = link_for(sites[0], plan, ledger, approve)
        _show(link, sites[0], plan, approve)


def _show(link: str, site: str, plan: NodePlan, approve: bool) -> None:
    """Print a link, and beside it what its site and this node's operator do."""
    click.echo(link)
    then = (
        f"{site} does not join at once: `fednode join` there asks this node, and ends. Then "
        f"`fednode invite --list` here shows the words of {site}'s key, and after `fednode invite "
        f"--accept {site}` the same `fednode join` joins.\n"
    )
    words = words_of(str(plan.peers.mesh_key))
    click.echo(
        f"For {site}, to be used once within {DAYS} days: fednode join LINK --data DIR\n"
        f"{then if approve else ''}"
        f"The words of the mesh, which {site} must see, too: {words}",
        err=True,
    )


def _list(ledger: Ledger) -> None:
    book = ledger.read()
    for site, entry in book.entries.items():
        if entry.waiting:
            words = words_of(entry.id)
            click.echo(f"{site} at {entry.address} waits: {words}")
        elif site not in book.holders:
            click.echo(f"{site} has a link until {day(entry.end)}")
    if book.entries.keys() <= book.holders.keys():
        click.echo("No link is open, and no site waits.")


def _issue(nodes: tuple[str, ...], out: Path) -> None:
    plan = node_here()
    mesh = plan.peers.mesh
    if plan.peers.mesh_key is None:
        raise ConfigError(f"The mesh {mesh!r} speaks plain text (insecure: true): it has no keys.")
    addresses = addresses_of("NAME", nodes, RELAY)
    if RELAY in addresses.values() and not plan.peers.relays:
        name = next(name for name, address in addresses.items() if address == RELAY)
        raise ConfigError(
            f"{name!r} has no address, and peers.yaml lists no relay: give {name}=HOST:PORT."
        )
    authority = NodeIdentity(plan.state).sponsor()
    if authority is None:
        authority = Authority.root(mesh, load_mesh_key(plan))
    issue(out, plan, authority, Ledger(plan.state / FOLDER), addresses)
    click.echo(
        f"Wrote {', '.join(str(out / name) for name in addresses)}: move each folder to its "
        "machine over a safe channel, because it holds the key of that node, and put its node.yaml "
        "there. Then: cd FOLDER && fednode start (a relay: fednode relay --state FOLDER)"
    )
