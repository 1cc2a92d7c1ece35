"""FedTPG (Qiu et al. 2024): a network that makes prompts from class names, averaged every round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fednode.core.rounds.averaging import Averaging
from fednode.core.types import Json
from fednode.policies.fedtpg.config import FedTPGConfig


class FedTPG(Averaging):
    """Federated averaging of the arrays that objective.py trains."""

    name: ClassVar[str] = "fedtpg"
    config_type: ClassVar[type[FedTPGConfig]] = FedTPGConfig
    tuning: ClassVar[Mapping[str, Json]] = {}
    paper_number_bytes: ClassVar[int] = 2  # its paper counts float16
