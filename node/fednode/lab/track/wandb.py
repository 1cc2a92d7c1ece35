"""Weights & Biases. Without a login, runs are written offline; `wandb sync` sends them later.

The variables of W&B itself hold: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_BASE_URL,
WANDB_API_KEY, WANDB_RUN_GROUP.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import wandb

from fednode.lab.track.base import Run, kept_id

PROJECT: Final = "fednode"


class Wandb:
    """See Tracker. A table is a file of the run."""

    def __init__(self, run: Run) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self._folder = run.folder
        offline: Literal["offline"] | None = None
        if "WANDB_MODE" not in os.environ and not wandb.login(prompt=False):
            offline = "offline"  # `init` would ask the terminal for a key
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=os.environ.get("WANDB_RUN_GROUP", run.group),
            name=run.name,
            id=kept_id(run, "wandb"),
            resume="allow",
            config=dict(run.settings),
            dir=run.folder,
            mode=offline,
            # No output of the program, no figures of the machine, no source code: only what `log`
            # and `table` are given leaves this machine.
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_code=True,
                disable_git=True,
                save_code=False,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )

    @property
    def where(self) -> str:
        """Address of the run, or the command that sends it."""
        return self._run.url or f"wandb sync {self._folder}/wandb/offline-run-*"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the figures of a step, which is complete."""
        self._run.log(dict(values), step=step, commit=True)

    def table(self, path: Path) -> None:
        """Save a copy of the file with the run."""
        self._run.save(str(path), base_path=str(path.parent), policy="now")

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()
