"""Settings of FedTPG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import bounded
from fednode.core.types import Dtype


@dataclass(frozen=True, slots=True)
class FedTPGConfig(AveragingConfig):
    """FedTPG (Qiu et al. 2024): a network makes prompts from class names; it is averaged."""

    weights: Literal["samples", "equal"] = "equal"
    optimizer: Literal["keep", "reset"] = "keep"
    wire_dtype: Dtype = "float16"
    heads: int = 4
    """Heads of the network's cross-attention; they must divide the text tower's width."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        bounded("policy.heads", self.heads, 1)
