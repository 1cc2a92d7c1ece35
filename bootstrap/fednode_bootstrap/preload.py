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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "FEDNODE_PRELOAD"
"""Environment variable: JSON with "config" (path of node.yaml or null) and "flags" (of --set)."""


def environment(config: Path | None, flags: tuple[str, ...]) -> Mapping[str, str]:
    """Return the variables that tell this module which settings the daemons have."""
    told = {"config": None if config is None else str(config.resolve()), "flags": flags}
    return {VARIABLE: json.dumps(told)}


def load(told: str) -> None:
    """Import what daemons import and load their model; leave faults to the daemons themselves."""
    from fednode.errors import FednodeError

    given = json.loads(told)
    with contextlib.suppress(FednodeError):
        from fednode import registry
        from fednode.settings.read import load_settings

        path = None if given["config"] is None else Path(given["config"])
        settings = load_settings(path, os.environ, tuple(given["flags"]))
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
