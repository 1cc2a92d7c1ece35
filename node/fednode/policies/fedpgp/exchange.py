"""FedPGP (Cui et al., ICML 2024): a global prompt, averaged every round; its change stays.

The learner trains the global prompt and the node's low-rank change of it together. The change
travels in its carry, so it is never sent, and the node predicts with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fednode.core.rounds.averaging import Averaging
from fednode.core.types import Json
from fednode.policies.fedpgp.config import FedPGPConfig


class FedPGP(Averaging):
    """Federated averaging of the global prompt alone; see the file's header."""

    name: ClassVar[str] = "fedpgp"
    config_type: ClassVar[type[FedPGPConfig]] = FedPGPConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 16,
        "lr": 0.001,
        "batch_size": 16,
        "epochs": 2,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "schedule": "constant",
    }
