"""`fednode recover`: go on after damage to a state directory's journal."""

from __future__ import annotations

from pathlib import Path

import click

from fednode.app.saved import find
from fednode.storage import recover as storage
from fednode.terminal.paths import PATH


@click.command()
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
def recover(state: Path | None) -> None:
    """Rebuild a damaged journal.db from the rounds that are whole; the node must not run.

    The damaged file stays beside the new one as journal.db.damaged.
    """
    folder = find(state)
    number, lost = storage.recover(folder)
    more = f" {lost} newer rounds are lost." if lost > 1 else ""
    more = " One newer round is lost." if lost == 1 else more
    click.echo(
        f"{folder} holds round {number} again, and `fednode start` goes on there.{more} The "
        "damaged file is journal.db.damaged."
    )
