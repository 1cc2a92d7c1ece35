"""MaPLe (Khattak et al. 2023) under federated averaging: coupled prompts in both towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fednode.core.rounds.averaging import Averaging
from fednode.core.types import Json
from fednode.policies.fedmaple.config import FedMaPLeConfig


class FedMaPLe(Averaging):
    """Federated averaging of the arrays that objective.py trains."""

    name: ClassVar[str] = "fedmaple"
    config_type: ClassVar[type[FedMaPLeConfig]] = FedMaPLeConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 2,
        "init_words": "a photo",
        "lr": 0.0035,
        "batch_size": 4,
        "epochs": 5,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "schedule": "constant",
    }
