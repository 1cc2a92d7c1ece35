"""`fednode track NODE --to TRACKER`: write a node's rounds, or an experiment's cells, to a tracker.

The command reads what a node or a folder holds. A node does not know of it and never waits for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn, get_args

import click
import uvloop

from fednode.app.reach import reach
from fednode.errors import FednodeError
from fednode.lab.track import cells, node
from fednode.lab.track.trackers import Kind, shipped
from fednode.lab.track.writing import Patient
from fednode.terminal.paths import PATH

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of every command."""


@click.command()
@click.argument("source", metavar="NODE|FOLDER")
@click.option("--to", "kind", type=click.Choice(get_args(Kind)), required=True, help="The tracker.")
@click.option("--once", is_flag=True, help="Write what the node holds now; do not follow it.")
@click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
@click.option("--state", type=PATH, help="Whose key to use where the mesh speaks TLS.")
@click.option("--run", "name", help="Name of the run [the node's].")
@click.option(
    "--folder", type=PATH,
    help="Where the tracker writes [runs/track/MESH; an experiment's FOLDER/tracker].",
)  # fmt: skip
def track(
    source: str,
    kind: Kind,
    once: bool,
    peers_path: Path | None,
    state: Path | None,
    name: str | None,
    folder: Path | None,
) -> None:
    """Write the rounds of a node to an experiment tracker, and follow it to its last round.

    NODE is host:port, or a name. FOLDER is the output of `fednode experiment`: each
    finished cell becomes a run. Started again, the command writes what is new, and nothing twice.
    """
    tracker = shipped(kind)
    patient = Patient(tracker.title)
    if Path(source).is_dir():
        work = cells.track(Path(source), tracker, patient, click.echo, folder)
    else:
        make, ((_, address),) = reach(source, peers_path, state)
        work = node.track(
            make, address, tracker, patient, click.echo, name=name, folder=folder, once=once
        )
    try:
        uvloop.run(work)
    except (FednodeError, KeyboardInterrupt) as fault:
        if patient.broken:
            _leave(fault)
        raise


def _leave(fault: FednodeError | KeyboardInterrupt) -> NoReturn:
    """End the process at once: exit handlers of a tracker that failed may wait for ever."""
    if isinstance(fault, FednodeError):
        click.echo(f"fednode: {fault}", err=True)
    os._exit(fault.exit_code if isinstance(fault, FednodeError) else INTERRUPTED)
