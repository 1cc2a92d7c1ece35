"""The control: tune exactly what ZeroDFL tunes (CoOp), or compute what policy gda computes."""

from __future__ import annotations

from fednode.clip.backbone import Backbone
from fednode.learn.class_sums import AloneObjective
from fednode.learn.context import ContextObjective
from fednode.learn.settings import TuningSettings
from fednode.policies.local.exchange import LocalConfig


def Objective(
    backbone: Backbone, settings: TuningSettings, config: LocalConfig | None = None
) -> ContextObjective | AloneObjective:
    """Return the objective of the head that the settings name."""
    if config is None or config.head == "prompt":
        return ContextObjective(backbone, settings, config)
    return AloneObjective(config.head, backbone, settings, config)
