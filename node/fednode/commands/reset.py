"""`fednode reset`: delete what a node learned, so that its next start begins at round 0."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import click

from fednode.app.baseline import COMPARISON
from fednode.app.baseline import FILE as CONTROL
from fednode.app.create import FILES
from fednode.app.page_link import FILE as PAGE_TOKEN
from fednode.app.page_link import LINK as PAGE_LINK
from fednode.app.state_dir import ROOT, find
from fednode.enrolment.ledger import FOLDER as ENROLMENT
from fednode.errors import StateError
from fednode.identity.identity import IDENTITY
from fednode.identity.keys import MESH_KEY_FILE
from fednode.observe.logs import FILE as LOG
from fednode.storage.disk import explained, lock, refuse_earlier
from fednode.storage.store import CHECKPOINTS, CLASSES, HISTORY, RUNS, SETTINGS
from fednode.terminal.options import PATH, confirm

ACCOUNT: Final = "privacy.json"
LOCK: Final = "lock"
LEARNED: Final = (
    *(CHECKPOINTS, RUNS, HISTORY, SETTINGS, CLASSES, f"{LOG}*", PAGE_TOKEN),
    *(PAGE_LINK, CONTROL, COMPARISON),
)
KEPT: Final = (IDENTITY, ENROLMENT, ACCOUNT)
"""Only --all deletes these."""
WHOLE: Final = (*LEARNED, *KEPT)
"""All that a node writes there."""


@click.command()
@click.option("--state", type=PATH, help="State directory [the only one of this machine].")
@click.option("--all", "whole", is_flag=True, help="Delete key, certificate and privacy account.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(state: Path | None, whole: bool, yes: bool) -> None:
    """Delete prompts, history, log and settings from a state directory. Stop the node first.

    The next start begins at round 0. The node keeps its key, so its peers still know it, and the
    account of the privacy that it spent. With --all these are deleted, too: to join again, the node
    needs a new link (`fednode remove SITE`, then `fednode invite SITE`), and a sponsor admits
    nobody any more. Privacy that was spent is counted no more. Files that are not fednode's stay.
    """
    folder = find(state)
    if not folder.is_dir():
        raise StateError(f"There is no state directory {folder}: give another with --state.")
    refuse_earlier(folder)
    doomed = found_in(folder, WHOLE if whole else LEARNED)
    if not doomed:
        raise StateError(f"{folder} holds nothing to delete of a node: give another with --state.")
    certified, joined = ((folder / path).exists() for path in (IDENTITY, f"{ENROLMENT}/{FILES}"))
    descriptor = lock(folder)  # a running node holds it
    try:
        if not yes:
            click.echo(f"In {folder}: {', '.join(path.name for path in doomed)}")
            confirm("Delete these for good?", "delete", "Nothing was deleted.")
        delete(doomed)
        (folder / LOCK).unlink()
    finally:
        os.close(descriptor)
    kept = [path.name for path in found_in(folder, KEPT)]
    others = sorted(path.name for path in folder.iterdir() if path.name not in kept)
    click.echo(f"{folder}: {', '.join(path.name for path in doomed)} deleted.")
    if kept:
        click.echo(f"Kept: {', '.join(kept)}; --all deletes these, too.")
    if others:
        click.echo(f"Left alone, because fednode did not write them: {', '.join(others)}.")
    mesh_key = folder.parent / MESH_KEY_FILE
    if whole and mesh_key.exists():
        click.echo(f"The mesh key stays, {mesh_key}: its holder decides who is a member.")
    if whole and certified:
        click.echo(
            "To join again, move the folder of the settings away: `fednode join LINK` makes it."
            if joined
            else "To join again, this node needs the folder anew that `fednode invite --out` wrote."
        )
    with contextlib.suppress(OSError):  # files of others are left in it
        folder.rmdir()
        if folder.parent.parent == Path.home() / ROOT:
            folder.parent.rmdir()


def found_in(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the paths of a folder that are there, in the order of the patterns."""
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def delete(doomed: list[Path]) -> None:
    """Delete files and folders; raise StateError if one cannot be deleted."""
    for path in doomed:
        with explained(f"{path} cannot be deleted", "; mend that and reset again."):
            if path.is_dir() and not path.is_symlink():
                for file in sorted(path.glob("*.safetensors")):
                    file.unlink()  # the newest checkpoint last: no node goes on from an older one
                shutil.rmtree(path)
            else:
                path.unlink()
