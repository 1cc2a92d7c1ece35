"""The page docs/commands.md: a row for each command, from the texts that `--help` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import click

from fednode.cli import GROUPS, group

HEAD: Final = """\
# Commands

This page is generated from the command line by `make settings`. `fednode COMMAND -h` explains the
options. Words in capitals stand for your own; what is in brackets may be left out.
[Exit codes](operations.md#exit-codes) are the same for all commands.
"""
TABLE: Final = ("| command | what it does | options |", "|---|---|---|")


def page() -> str:
    """Return the page, with a table for each group of commands."""
    top = click.Context(group, info_name="fednode")
    lines = [HEAD]
    for wanted, names in GROUPS.items():
        lines += [f"## {wanted}", "", *TABLE, *rows(group, top, names), ""]
    return "\n".join(lines).rstrip() + "\n"


def rows(parent: click.Group, above: click.Context, names: Iterable[str]) -> Iterator[str]:
    """Yield a row for each of a group's commands that does something, and for its subcommands."""
    for name in names:
        command = parent.get_command(above, name)
        assert command is not None
        context = click.Context(command, above, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield row(command, context)
        if isinstance(command, click.Group):
            yield from rows(command, context, command.list_commands(context))


def row(command: click.Command, context: click.Context) -> str:
    """Return the row of a command: its usage, the first paragraph of its help, its options."""
    words, options = [context.command_path], []
    for one in command.params:
        if isinstance(one, click.Option):
            options.append(f"`{max(one.opts, key=len)}`")
        else:
            words.append(one.make_metavar(context))
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    return f"| `{' '.join(words)}` | {text} | {' '.join(options)} |"
