"""Settings of FedCLIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.averaging import AveragingConfig


@dataclass(frozen=True, slots=True)
class FedCLIPConfig(AveragingConfig):
    """FedCLIP (Lu et al. 2023): an adapter behind the images, averaged in every round."""

    weights: Literal["samples", "equal"] = "equal"
    loss: Literal["contrastive", "ce"] = "contrastive"
    """contrastive: the released code's loss, symmetric over the batch, in which two images of one
    class count as different. ce: cross-entropy over the node's classes."""
