"""`fednode requests`: list, admit or refuse the sites whose links wait for the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fednode.admission.register import Register


def _register() -> Register:
    from fednode.app.admission import register_of
    from fednode.app.founding import admitting
    from fednode.app.network import IDENTITY
    from fednode.identity.identity import Identity

    plan = admitting()
    return register_of(plan.state, Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name))


@click.group(invoke_without_command=True)
@click.pass_context
def requests(context: click.Context) -> None:
    """List the sites that wait (`fednode invite --approve`), with the words of their keys.

    Compare the words by phone before you admit a site.
    """
    if context.invoked_subcommand is None:
        _list()


def _list() -> None:
    from fednode.admission.words import words_of
    from fednode.identity import keys

    waiting = _register().tokens.requests()
    for asked in waiting:
        click.echo(f"{asked.name} at {asked.address}: {words_of(keys.read_group(asked.id))}")
    if not waiting:
        click.echo("No site waits.")


@requests.command()
@click.argument("site")
def admit(site: str) -> None:
    """Admit the node SITE that waits; it runs its `fednode join` again."""
    asked = _register().tokens.settle(site, good=True)
    click.echo(f"{asked.name} may join now: it runs the same `fednode join` again.")


@requests.command()
@click.argument("site")
def refuse(site: str) -> None:
    """Refuse the node SITE that waits, and end its link."""
    asked = _register().tokens.settle(site, good=False)
    click.echo(f"{asked.name} was refused, and its link has ended.")
