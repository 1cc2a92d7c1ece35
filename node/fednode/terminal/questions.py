"""Questions to a person at a terminal."""

from __future__ import annotations

import sys

import click

from fednode.errors import ConfigError, Declined


def confirm(question: str, matter: str, refusal: str) -> None:
    """Ask a person to confirm something.

    matter: what is done then, such as "delete". refusal: the sentence after another answer than
    yes. Raise Declined after a no, and ConfigError if nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"Nobody can be asked here whether to {matter}: give --yes.")
    try:
        if click.confirm(question):
            return
    except click.Abort:
        raise click.Abort from KeyboardInterrupt(refusal)
    raise Declined(refusal)
