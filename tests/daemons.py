"""Daemons as processes: forks of one process that has imported what a node without torch needs.

Imports take longer than most of what the tests do with a daemon. Tests of what comes before the
imports, or of how a person starts one, start it as a program.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

from fednode_bootstrap import daemon, preload
from fednode_bootstrap.daemon import Daemon, stop

# A bound for a test that hangs, not a measurement.
GUARD_S = 180.0


async def start(made: Daemon, program: bool = False) -> None:
    """Start a daemon in this folder and with this environment, as a fork or as a program."""
    forks = daemon.FORKS and not program
    if forks:
        preload.start_server(None, ("tuning.kind=closed-form",))
    with mock.patch.object(daemon, "FORKS", forks):
        await made.start()


@contextlib.asynccontextmanager
async def running(
    folder: Path, name: str, *words: str, program: bool = False
) -> AsyncIterator[Daemon]:
    """Run `fednode` with these words until the block ends; its output is in NAME.log."""
    made = Daemon(name, words, folder / f"{name}.log")
    await start(made, program)
    try:
        yield made
    finally:
        await stop((made,), GUARD_S)
