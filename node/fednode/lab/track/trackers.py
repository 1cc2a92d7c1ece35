"""The trackers that fednode knows, and what each of them needs."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from fednode.errors import ConfigError
from fednode.lab.track.base import Tracker

Kind = Literal["tensorboard", "wandb", "mlflow"]


@dataclass(frozen=True, slots=True)
class Shipped:
    """A tracker that fednode knows. place: MODULE:CLASS. package: what it needs."""

    title: str
    place: str
    package: str

    def load(self) -> type[Tracker]:
        """Import the tracker's class; this takes seconds for some trackers."""
        module, name = self.place.split(":")
        return cast("type[Tracker]", getattr(importlib.import_module(module), name))


TRACKERS: Final[Mapping[Kind, Shipped]] = {
    "tensorboard": Shipped(
        "TensorBoard", "fednode.lab.track.tensorboard:TensorBoard", "tensorboardX"
    ),
    "wandb": Shipped("Weights & Biases", "fednode.lab.track.wandb:Wandb", "wandb"),
    "mlflow": Shipped("MLflow", "fednode.lab.track.mlflow:Mlflow", "mlflow"),
}


def shipped(kind: Kind) -> Shipped:
    """Return a tracker by its name; raise ConfigError if its package is not installed."""
    tracker = TRACKERS[kind]
    spec = importlib.util.find_spec(tracker.package)
    if spec is None or spec.origin is None:  # a folder of that name is no package
        raise ConfigError(
            f"The tracker {kind} needs the package {tracker.package}, which is not installed: run "
            f"pip install 'fednode[{kind}]'."
        )
    return tracker
