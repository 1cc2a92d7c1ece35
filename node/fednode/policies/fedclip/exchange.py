"""FedCLIP (Lu et al. 2023): an attention adapter on image features, averaged every round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fednode.core.rounds.averaging import Averaging
from fednode.core.types import Json
from fednode.policies.fedclip.config import FedCLIPConfig


class FedCLIP(Averaging):
    """Federated averaging of the arrays that objective.py trains."""

    name: ClassVar[str] = "fedclip"
    config_type: ClassVar[type[FedCLIPConfig]] = FedCLIPConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "lr": 5e-05,
        "optimizer": "adam",
        "betas": [0.9, 0.98],
        "eps": 1e-06,
        "weight_decay": 0.2,
        "batch_size": 32,
        "schedule": "constant",
        "template": "a picture of a {}.",
    }
