"""Settings of FedMaPLe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import bounded


@dataclass(frozen=True, slots=True)
class FedMaPLeConfig(AveragingConfig):
    """FedMaPLe: MaPLe's coupled prompts in both towers (Khattak et al. 2023), averaged."""

    weights: Literal["samples", "equal"] = "equal"
    depth: int = 9
    """Number of blocks of each tower with prompts of their own; at most as many as there are."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        bounded("policy.depth", self.depth, 1)
