"""FedOTP (Li et al., CVPR 2024): a global prompt, averaged every round; a local prompt stays.

The learner trains both prompts together. The local prompt travels in its carry, so it is never
sent, and the node predicts with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fednode.core.rounds.averaging import Averaging
from fednode.core.types import Json
from fednode.policies.fedotp.config import FedOTPConfig


class FedOTP(Averaging):
    """Federated averaging of the global prompt alone; see the file's header."""

    name: ClassVar[str] = "fedotp"
    config_type: ClassVar[type[FedOTPConfig]] = FedOTPConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 16,
        "lr": 0.001,
        "batch_size": 16,
        "epochs": 5,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "schedule": "constant",
    }
