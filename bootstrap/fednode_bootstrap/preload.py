"""Load, when imported, everything that the parent of forked daemons needs before its first fork.

The parent must have one thread, because a fork has only the thread that forked. So torch computes
with one thread here; each daemon sets its own number of threads after its fork.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
from multiprocessing import forkserver
from pathlib import Path
from typing import Final

from fednode.terminal.stop import held_back

VARIABLE: Final = "FEDNODE_PRELOAD"
"""Environment variable: JSON list of the path of node.yaml, or null, and the words of --set."""


def start_server(config: Path | None, flags: tuple[str, ...]) -> None:
    """Start the fork server of this process, which loads what daemons of these settings need.

    A server that runs already stays as it is.
    """
    os.environ[VARIABLE] = json.dumps([None if config is None else str(config.resolve()), flags])
    forkserver.set_forkserver_preload([__name__])
    try:
        with held_back(signal.SIGINT):
            forkserver.ensure_running()
    finally:
        del os.environ[VARIABLE]


def load(text: str) -> None:
    """Import what daemons import and load their model; leave faults to the daemons themselves."""
    from fednode.errors import FednodeError

    config, flags = json.loads(text)
    with contextlib.suppress(FednodeError):
        from fednode import registry
        from fednode.settings.read import load_settings

        settings = load_settings(config and Path(config), os.environ, tuple(flags))
        import fednode.app.assemble  # noqa: F401

        if settings.tuning.kind != "torch":
            return
        from fednode.clip import model as clip
        from fednode.freed import use_one_arena
        from fednode.learn.build import use_threads

        use_one_arena()
        use_threads(1)
        registry.prompt_module(settings.policy.name)
        clip.keep(settings.model)
    # Extension modules complain on the terminal if they are unloaded while objects are frozen.
    # Forks do not inherit this, because multiprocessing clears the handlers of a child.
    atexit.register(os._exit, 0)
    gc.collect()
    gc.freeze()  # collections in a daemon do not write to these pages


if VARIABLE in os.environ:
    load(os.environ.pop(VARIABLE))
