"""`fednode sponsor`: let another node of the mesh admit sites, too."""

from __future__ import annotations

from pathlib import Path

import click

from fednode.app.client import ask_peers, control, place_of
from fednode.app.create import load_mesh_key, node_here
from fednode.errors import ConfigError, FednodeError, Unreachable
from fednode.identity.certificates import Authority, Chain
from fednode.identity.identity import NodeIdentity
from fednode.identity.keys import PublicKey
from fednode.identity.roster import Roster
from fednode.observe.status import SPONSOR
from fednode.terminal.paths import PATH
from fednode.transports.address import asked_at


@click.command()
@click.argument("site")
@click.option(
    "--mesh-key",
    "key_file",
    type=PATH,
    help="A copy of the mesh key [the one that `init` made here]. With it any member runs this.",
)
def sponsor(site: str, key_file: Path | None) -> None:
    """Let the node SITE invite and admit sites, and renew certificates, for a year.

    The command needs the mesh key, so it runs on the founder's machine, or with --mesh-key on the
    machine of any member. SITE must run, unless it is this machine's own node.
    """
    plan = node_here()
    key, own = load_mesh_key(plan, key_file), NodeIdentity(plan.state)
    peers, fault = ([], None) if site == plan.name else ask_peers(plan)
    known = {peer.name: peer for peer in peers if peer.certificates}
    if fault is not None:
        raise type(fault)(f"{site} was not told: {fault} Run this again when {plan.name} runs.")
    if site not in {plan.name, *known}:
        names = ", ".join(sorted({plan.name, *known}))
        raise ConfigError(f"{plan.name} knows no {site!r}; it knows {names}.")
    public: PublicKey = own.key.public_key()
    where = place_of(plan)
    if site != plan.name:
        public = Chain.unpack(known[site].certificates).key
        where = asked_at(known[site].address, site)
    certificate = Authority.root(plan.peers.mesh, key).sponsor(site, public)
    if site == plan.name:
        own.take_sponsor(certificate, Roster(plan.peers.mesh, key.public_key()))
    try:
        click.echo(control(plan, where, SPONSOR, certificate))
    except FednodeError as failed:
        if site == plan.name and isinstance(failed, Unreachable):
            click.echo(f"{site} may admit sites for another year, from its next start on.")
            return
        raise type(failed)(f"{site} was not told: {failed} Run this again when it runs.") from None
