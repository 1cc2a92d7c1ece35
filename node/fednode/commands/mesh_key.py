"""Commands that take the mesh key: `fednode sponsor` and `fednode remove`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import click

from fednode.app.client import ask_peers, control, place_of
from fednode.app.create import load_mesh_key, node_here
from fednode.app.mesh import roster_in
from fednode.app.plan import NodePlan
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.errors import ConfigError, FednodeError, IdentityError, StateError, Unreachable
from fednode.identity.certificates import Authority, Chain, Revocation
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster
from fednode.observe.status import SPONSOR
from fednode.settings.faults import meant
from fednode.terminal.options import PATH, confirm
from fednode.transports.address import asked_at
from fednode.wire.gen import status_pb2

mesh_key_option = click.option(
    "--mesh-key",
    "key_file",
    type=PATH,
    help="A copy of the mesh key [the one that `init` made here]. With it any member runs this.",
)


@click.command()
@click.argument("site")
@mesh_key_option
def sponsor(site: str, key_file: Path | None) -> None:
    """Let the node SITE invite and admit sites, and renew certificates, for a year.

    The command needs the mesh key, so it runs on the founder's machine, or with --mesh-key on the
    machine of any member. SITE must run, unless it is this machine's own node.
    """
    plan = node_here()
    key, where = load_mesh_key(plan, key_file), place_of(plan)
    root = Authority.root(plan.peers.mesh, key)
    if site == plan.name:
        own = NodeIdentity(plan.state)
        certificate = root.sponsor(site, own.key.public_key())
        own.take_sponsor(certificate, Roster(plan.peers.mesh, key.public_key()))
    else:
        peers, fault = ask_peers(plan)
        if fault is not None:
            raise type(fault)(f"{site} was not told: {fault} Run this again when {plan.name} runs.")
        known = {peer.name: peer for peer in peers if peer.certificates}
        if site not in known:
            names = ", ".join(sorted({plan.name, *known}))
            raise ConfigError(f"{plan.name} knows no {site!r}; it knows {names}.")
        certificate = root.sponsor(site, Chain.unpack(known[site].certificates).own.key)
        where = asked_at(known[site].address, site)
    try:
        click.echo(control(plan, where, SPONSOR, certificate))
    except FednodeError as failed:
        if site == plan.name and isinstance(failed, Unreachable):
            click.echo(f"{site} may admit sites for another year, from its next start on.")
            return
        raise type(failed)(f"{site} was not told: {failed} Run this again when it runs.") from None


@click.command()
@click.argument("site")
@mesh_key_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(site: str, key_file: Path | None, yes: bool) -> None:
    """Revoke the key of the node SITE, for good, and let this node tell all others.

    The command needs the mesh key. The name can be invited again. If SITE is a sponsor, it can
    admit nobody any more. The exit code is 1 if you answer no.
    """
    plan = node_here()
    key = load_mesh_key(plan, key_file)
    peers, fault = ask_peers(plan)
    ledger = Ledger(plan.state / FOLDER)
    id = _id_of(plan, ledger, site, peers, fault)
    if names := ", ".join(sorted(peer.name for peer in peers if _admitted(peer, site))):
        click.echo(f"{site} had admitted {names}: nodes that have met these sites go on with them.")
    if not yes:
        click.echo(
            f"This revokes the key of {site} for good: no node takes anything from it any more."
        )
        click.echo(f"{site} can come back only by a new link (`fednode invite {site}`).")
        refusal = "Nothing was done; the site is still a member."
        confirm(f"Remove {site} from the mesh?", f"remove {site}", refusal)
    proof = Revocation(plan.peers.mesh, site, id, int(time.time())).sign(key)
    roster_in(plan.state, plan.peers)[0].take_revocation(proof)  # told at the next start, too
    ledger.forget(site)
    if isinstance(fault, Unreachable):
        if not roster_in(plan.state, plan.peers)[0].is_revoked(id):
            raise StateError(
                f"{site} is not removed: {plan.name} does not run, and its state directory "
                f"{plan.state} cannot be written. Make room or start the node, and run this again."
            )
        click.echo(f"{site} is revoked; {plan.name} tells the others at its next start.")
        return
    try:
        control(plan, place_of(plan), "revoke", proof)
        click.echo(f"{site} is revoked, and {plan.name} tells everyone.")
    except FednodeError as failed:
        why = str(failed).rstrip(".")
        text = f"The nodes do not know yet that {site} is revoked: {why}. Run this again."
        raise type(failed)(text) from None


def _id_of(
    plan: NodePlan,
    ledger: Ledger,
    site: str,
    peers: Sequence[status_pb2.Peer],
    fault: FednodeError | None,
) -> str:
    """Return the id of a site.

    peers: those that the node of this machine knows; none if it did not answer. fault: then, why.
    Raise ConfigError if the site is not known, or is this node itself.
    """
    ids = dict(ledger.read().holders)
    met = roster_in(plan.state, plan.peers)[2]
    ids |= {member.name: member.id for member in met if member.state != "revoked"}
    ids |= {peer.name: peer.id for peer in peers if peer.id}
    ids.pop(plan.name, None)
    if site == plan.name:
        raise ConfigError(
            f"{site!r} is this node itself, and removes only others: `fednode leave` and `fednode "
            "reset --all` let it leave the mesh for good."
        )
    if site not in ids:
        others = f"it knows {', '.join(sorted(ids)) or 'no other site'}."
        asked = f" {plan.name} was asked, too, and did not answer: {fault}" if fault else ""
        raise ConfigError(
            f"{plan.name} knows no site {site!r}; {meant(site, sorted(ids)) or others}{asked}"
        )
    return ids[site]


def _admitted(peer: status_pb2.Peer, sponsor: str) -> bool:
    with contextlib.suppress(IdentityError):
        by = Chain.unpack(peer.certificates).sponsor
        return by is not None and by.name == sponsor != peer.name
    return False
