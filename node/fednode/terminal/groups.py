"""A command with subcommands whose help shows the first sentence of each in full."""

from __future__ import annotations

import click

SENTENCE_MAX = 1000
"""Most characters of a sentence; click cuts it at the line's end by default."""


class Whole(click.Group):
    """A group whose `--help` cuts no sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands with the first sentence of their help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(SENTENCE_MAX))
            for name, command in commands
            if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
