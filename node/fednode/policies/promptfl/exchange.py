"""PromptFL (Guo et al. 2023): one prompt of context vectors, averaged every round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fednode.core.rounds.averaging import Averaging
from fednode.core.types import Json
from fednode.policies.promptfl.config import PromptFLConfig


class PromptFL(Averaging):
    """Federated averaging of the arrays that objective.py trains."""

    name: ClassVar[str] = "promptfl"
    config_type: ClassVar[type[PromptFLConfig]] = PromptFLConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 16,
        "lr": 0.001,
        "batch_size": 32,
        "epochs": 5,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "schedule": "constant",
    }
