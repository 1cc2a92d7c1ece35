"""`fednode join`: join a mesh by a link, and run the node."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.app.create import PORT, address_here, remember_files, with_port
from fednode.app.join import (
    images_line,
    leaves,
    model_line,
    peers_of,
    settings_text,
)
from fednode.app.mesh import PROXY
from fednode.app.node_yaml import write_files
from fednode.app.plan import (
    SUMS,
    NodePlan,
    checked,
    learner_of,
    plan_in,
    sums_fault,
)
from fednode.app.state_dir import ROOT
from fednode.commands.check import report
from fednode.commands.start import begin
from fednode.enrolment import invitation as links
from fednode.enrolment.client import Newcomer
from fednode.enrolment.invitation import Invitation
from fednode.enrolment.words import same, words_of
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import FOREIGN, Roster
from fednode.learn.learner import Learner
from fednode.settings import trees
from fednode.settings.peers import Peers
from fednode.settings.read import Source, settings_in
from fednode.settings.shared import parse as parse_shared
from fednode.terminal.options import PATH, confirm
from fednode.terminal.progress import Shown
from fednode.transports.address import RELAY, Endpoint, parse
from fednode.wire.gen.enrolment_pb2 import DescribeReply

NOTHING: Final = "Nothing was joined; the link can still be used."


@click.command()
@click.argument("link", required=False)
@click.option("--data", type=PATH, required=True, help="Folder of images, one folder per class.")
@click.option("--address", help="HOST[:PORT] at which the other sites reach this node, or relay.")
@click.option("--model", help="Your file of the model, if each site of the mesh has its own.")
@click.option("--set", "flags", multiple=True, help="section.key=value of this site's own.")
@click.option("--yes", is_flag=True, help="Ask nothing; needs --words.")
@click.option("--words", help="The five words of the mesh, as its founder said them.")
@click.option("--no-start", is_flag=True, help="Do not start the node.")
def join(
    link: str | None,
    data: Path,
    address: str | None,
    model: str | None,
    flags: tuple[str, ...],
    yes: bool,
    words: str | None,
    no_start: bool,
) -> None:
    """Join the mesh of a LINK: show what it is, ask, write a folder of settings, and start.

    Without LINK the command asks for it, and - reads it from standard input, so that it does not
    stand in the list of processes. The exit code is 1 if you answer no.
    """
    if yes and words is None:
        raise ConfigError("--yes needs --words: the five words that the founder of the mesh said.")
    if link == "-" and not yes:
        raise ConfigError("With - for LINK nobody can be asked here: give --yes and --words.")
    if link == "-":
        link = sys.stdin.read(links.TEXT_MAX)
    invitation = links.decode(_asked() if link is None else link)
    folder = Path(invitation.mesh)
    state = Path.home() / ROOT / invitation.mesh / invitation.site
    if folder.exists():
        raise ConfigError(
            f"There is a {folder.resolve()} already: run this in another folder, or, if you joined "
            "before, `fednode start` in that one. If the node was removed from the mesh: `fednode "
            "reset --all` in that one, and move it away."
        )
    identity = NodeIdentity.create(state)
    roster = Roster(invitation.mesh, keys.read_public(invitation.mesh_key))
    if identity.name and roster.explain(identity.own().chain) == FOREIGN:
        raise ConfigError(
            f"The link is of another mesh called {invitation.mesh!r} than the one that {state} "
            "belongs to: remove that folder if you want to leave the other mesh for good."
        )
    newcomer = Newcomer(invitation, identity, os.environ.get(PROXY))
    address = with_port(address) if address else _address_towards(invitation, identity.id)
    if address == invitation.address != RELAY:
        raise ConfigError(
            f"{address} is the address of {invitation.sponsor}, which made the link: give another "
            f"port, such as --address {Endpoint(parse(address).host, PORT + 1)}."
        )
    reply = uvloop.run(newcomer.describe())
    text = settings_text(parse_shared(reply.settings), invitation.site, data, model, flags)
    peers = peers_of(invitation, address)
    parts = _parts(text, peers, state)
    _agree(invitation, reply, identity, words if yes else None, *parts)
    uvloop.run(newcomer.enrol(address))
    write_files(folder, text, peers)
    remember_files(state, folder)
    click.echo(f"Joined {invitation.mesh}; the settings are in {folder.resolve()}.")
    _check(folder)
    if no_start:
        click.echo(f"Start the node: cd {folder} && fednode start")
    else:
        begin(plan_in(folder))


def _asked() -> str:
    """Ask for the link up to an empty line, because a mail program may break it."""
    asked = "The link, then an empty line"
    return "\n".join(iter(lambda: click.prompt(asked, default="", show_default=False).strip(), ""))


def _address_towards(invitation: Invitation, id: str) -> str:
    """Return the address of the node `id` on its way to the sponsor, or `relay`."""
    sponsor = parse(invitation.address)
    return RELAY if sponsor.relayed else address_here((sponsor.numeric, sponsor.port), id)


def _parts(text: str, peers: Peers, state: Path) -> tuple[NodePlan, Learner]:
    settings = settings_in(Source("node.yaml", trees.read(text)[1]), os.environ)
    plan = checked(str(settings.name), settings, peers, state)
    click.echo("Loading the images and the model here, to show what would leave it.")
    with Shown(NOTHING) as progress:
        learner = learner_of(plan.settings, plan.name, progress=progress)
    if fault := sums_fault(plan, learner):
        raise ConfigError(fault)
    return plan, learner


def _agree(
    invitation: Invitation,
    reply: DescribeReply,
    identity: NodeIdentity,
    words: str | None,
    plan: NodePlan,
    learner: Learner,
) -> None:
    """Show what would be joined; raise Declined if the operator does not agree."""
    known = words_of(invitation.mesh_key)
    settings, rounds = plan.settings, plan.settings.rounds
    few = rounds.start.peers
    least = f"at least {few} other member{'s' * (few != 1)}" if few else "its peers"
    private = "off (privacy.clip)"
    if settings.privacy.clip is not None:
        private = f"clip {settings.privacy.clip:g} (privacy.clip)"
    elif plan.policy.name == SUMS:
        private = f"no noise, which {SUMS} cannot add"
    if not settings.data.tell_classes:
        names = "not told (data.tell_classes)"
    elif plan.policy.name == SUMS:
        names = f"told, because {SUMS} matches classes by name"
    else:
        names = "told (if they are not to be: --set data.tell_classes=false)"
    held = getattr(learner, "data", None)
    images = "" if held is None else f"images         {images_line(held)}\n"
    click.echo(
        f"mesh           {plan.peers.mesh}, words: {known}\n"
        f"this node      {plan.name} at {plan.address}, words: "
        f"{words_of(identity.id)}\n"
        f"members        {', '.join(reply.members)}\n"
        f"method         {plan.policy.name}; {rounds.max or 'endless'} rounds; round one waits for "
        f"{least}\n"
        f"model          {model_line(reply.model, invitation.sponsor, learner.backbone)}\n"
        f"{images}"
        f"leaves here    {leaves(plan, learner)}\n"
        f"stays here     all images, labels and file names\n"
        f"privacy        {private}, class names {names}"
    )
    if words is not None:
        if not same(words, known):
            raise ConfigError(
                f"The words of the mesh are {known!r}, and --words says {words!r}: the link is not "
                "of the mesh that you were invited to, or a word is misspelt."
            )
        return
    click.echo(f"Ask {invitation.sponsor} by phone whether the words of the mesh are the same.")
    confirm("Join this mesh?", "join", NOTHING)


def _check(folder: Path) -> None:
    """Print all findings on the node; raise ConfigError if one of them is a fault."""
    kept = "The node is a member; `fednode start` in its folder runs it."
    if any(level == "fault" for level, _ in report(partial(plan_in, folder), kept)):
        raise ConfigError(
            "This node is a member now and was not started: mend what is said above, then run "
            f"`cd {folder} && fednode start`."
        )
