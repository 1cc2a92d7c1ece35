"""`fednode settings`: see, propose, take and refuse changes of the settings that a mesh shares."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from fednode.errors import ConfigError
from fednode.terminal.settings import proposal_lines, said

if TYPE_CHECKING:
    from fednode.app.plan import NodePlan
    from fednode.observe.client import Client
    from fednode.wire.gen import status_pb2

PREPARES_S: Final = 1800.0
"""How long a command waits while a node loads its model under other settings."""
AFTER: Final = 10
"""After how many rounds a change begins, if nobody says otherwise."""


@click.group(invoke_without_command=True)
@click.pass_context
def settings(context: click.Context) -> None:
    """Show the settings that the mesh shares, and the changes that are proposed.

    Run it in the node's folder (peers.yaml and node.yaml), while the node runs.
    """
    if context.invoked_subcommand is None:
        plan = _plan()

        async def look(client: Client, at: str) -> str:
            return "\n".join(said((await client.status(at)).settings))

        _run(plan, look)


@settings.command()
@click.option("--set", "flags", multiple=True, help="section.key=value, as often as needed.")
@click.option("--policy", help="Another policy, with the settings that it brings.")
@click.option("--after", default=AFTER, show_default=True, help="Begin after so many rounds.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def propose(flags: tuple[str, ...], policy: str | None, after: int, yes: bool) -> None:
    """Propose a change of the shared settings, and of the relays in peers.yaml.

    This node must be one that admits sites: the founder, or a sponsor. It accepts the change
    itself. Each other site decides for itself, by hand or by `allow` in its node.yaml. A site that
    refuses goes on alone.
    """
    from fednode.app.documents import DocumentFolder
    from fednode.app.proposing import proposed, signed
    from fednode.app.switching import anew, changed
    from fednode.settings.differences import in_words

    if after < 1:
        raise ConfigError(f"--after is {after}; give at least 1 round.")
    plan = _plan()
    held = DocumentFolder.of(plan.state, plan.peers)

    async def decide(client: Client, at: str) -> str:
        now = await client.status(at)
        number = 1 + max([now.settings.number, *(one.number for one in now.settings.proposals)])
        content = proposed(plan, held.force, number, now.round + after, flags, policy)
        found = changed(plan, content)
        if not found:
            raise ConfigError("This changes nothing: give --set section.key=value, or --policy.")
        document = signed(plan, content)
        click.echo(f"Settings {number}, from round {content.start} on:")
        click.echo("\n".join(f"  {line}" for line in in_words(found, anew(plan, found))))
        if not _agrees(yes, "Propose this to all sites of the mesh?"):
            return "Nothing was proposed."
        return await client.control(at, "propose", document)

    _run(plan, decide)


@settings.command()
@click.argument("which", required=False, default="")
def diff(which: str) -> None:
    """Show what a proposed change does at this node, in words.

    WHICH is its number, or the beginning of its digest; without it, each proposed change is shown.
    """
    plan = _plan()

    async def look(client: Client, at: str) -> str:
        proposals = _picked(await client.status(at), which)
        return "\n".join(line for one in proposals for line in proposal_lines(one))

    _run(plan, look)


@settings.command()
@click.argument("which", required=False, default="")
@click.option("--yes", is_flag=True, help="Do not ask.")
def take(which: str, yes: bool) -> None:
    """Accept a proposed change, once this node can run under it.

    The node loads model and images under the new settings first. If that fails, one sentence says
    why, and nothing changes. WHICH is as in `diff`; without it, the newest change is taken.
    """
    plan = _plan()

    async def decide(client: Client, at: str) -> str:
        proposal = _picked(await client.status(at), which)[0]
        click.echo("\n".join(proposal_lines(proposal)))
        if not _agrees(yes, "Accept it at this node?"):
            return "Nothing was decided."
        return await client.control(at, "take", which=proposal.digest)

    _run(plan, decide)


@settings.command()
@click.argument("which", required=False, default="")
@click.option("--yes", is_flag=True, help="Do not ask.")
def refuse(which: str, yes: bool) -> None:
    """Refuse a proposed change: this node goes on under the present settings.

    Sites that accept it go on without this node. WHICH is as in `diff`.
    """
    plan = _plan()

    async def decide(client: Client, at: str) -> str:
        proposal = _picked(await client.status(at), which)[0]
        click.echo("\n".join(proposal_lines(proposal)))
        if not _agrees(yes, "Refuse it at this node?"):
            return "Nothing was decided."
        return await client.control(at, "refuse", which=proposal.digest)

    _run(plan, decide)


def _plan() -> NodePlan:
    """Return the plan of the node whose files lie here, or of the only node of this machine."""
    from fednode.app.founding import node_here

    return node_here()


def _run(plan: NodePlan, ask: Callable[[Client, str], Awaitable[str]]) -> None:
    """Ask the running node with its own key, over one connection; print the answer.

    ask: gets the connection, and where the node is asked.
    """
    import uvloop

    from fednode.app.network import client_of, place_of

    async def asks() -> str:
        async with client_of(plan.peers, plan.state, PREPARES_S) as client:
            return await ask(client, place_of(plan))

    click.echo(uvloop.run(asks()))


def _picked(status: status_pb2.StatusReply, which: str) -> list[status_pb2.Proposal]:
    """Return the proposals that a word names, newest first; raise ConfigError if there is none."""
    proposals = list(status.settings.proposals)
    if which:
        proposals = [
            one
            for one in proposals
            if str(one.number) == which or (len(which) >= 4 and one.digest.startswith(which))
        ]
    if not proposals:
        what = f" called {which[:40]!r}" if which else ""
        raise ConfigError(
            f"No change of the settings{what} is proposed; `fednode settings` shows what is."
        )
    return proposals


def _agrees(yes: bool, question: str) -> bool:
    if not yes and not sys.stdin.isatty():
        raise ConfigError("Nobody can be asked here: give --yes.")
    return yes or click.confirm(question)
