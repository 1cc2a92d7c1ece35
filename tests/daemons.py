"""Daemons as processes: forks of one process that has imported what a node without torch needs.

Imports take longer than most of what the tests do with a daemon. Tests of what comes before the
imports, or of how a person starts one, start it as a program.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from fednode_bootstrap import forks, preload
from fednode_bootstrap.process import FEDNODE, PROGRAM, Daemon, Launch, Process, execute

# A bound for a test that hangs, not a measurement.
GUARD_S = 180.0


async def fork(words: Sequence[str], log: Path, module: str = PROGRAM) -> Process:
    """Run `fednode` with these words in a fork, in this folder and with this environment."""
    loads = preload.environment(None, ("tuning.kind=closed-form",))
    return await forks.launch(module, words, log, loads)


async def fork_with_torch(words: Sequence[str], log: Path) -> Process:
    """Do so for a node that encodes public images; it encodes few."""
    return await fork(words, log, "tests.few_public_images")


async def program(words: Sequence[str], log: Path) -> Process:
    """Run `fednode` with these words as a program."""
    return await execute((*FEDNODE, *words), log)


@contextlib.asynccontextmanager
async def running(
    folder: Path, name: str, *words: str, launch: Launch = fork
) -> AsyncIterator[Daemon]:
    """Run `fednode` with these words until the block ends; its output is in NAME.log."""
    daemon = Daemon(name, words, folder / f"{name}.log", launch)
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.stop(GUARD_S)
