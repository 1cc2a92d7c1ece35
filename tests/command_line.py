"""Read a command line as fednode would, and run nothing."""

from __future__ import annotations

from collections.abc import Sequence

import click

from fednode.cli import group


def parsed(words: Sequence[str]) -> click.Context:
    """Return what the words after `fednode` come to; raise click's exception for what is wrong."""
    command: click.Command = group
    # click keeps a command's help option from its first context, so each context has its parent.
    context = click.Context(group, **group.context_settings)
    rest = list(words)
    while isinstance(command, click.Group) and (rest or not command.invoke_without_command):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        command, context = found, click.Context(found, parent=context)
    return command.make_context("fednode", rest, parent=context.parent)


def named(name: str) -> click.Command | None:
    """Return the command that a word after `fednode` leads to; it is imported."""
    return group.get_command(click.Context(group), name)
