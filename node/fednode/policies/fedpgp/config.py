"""Settings of FedPGP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import bounded, positive


@dataclass(frozen=True, slots=True)
class FedPGPConfig(AveragingConfig):
    """FedPGP (Cui et al., ICML 2024): a global prompt is averaged, its low-rank change is private.

    A node's prompt is the global one plus the product of two narrow matrices of its own.
    """

    rank: int = 8
    """b: width of the two private matrices."""
    contrast: float = 0.5
    """mu: weight of the contrastive term, which pulls the global prompt's texts to hand-written
    ones and apart from the node's own; 0: off."""
    temperature: float = 0.5
    """t: divisor of the cosines in the contrastive term."""
    anchor: Literal["template", "letters"] = "template"
    """The hand-written texts of the contrastive term. template: tuning.template, as in the paper.
    letters: tuning.context_length letters X before the name, as in the released code."""
    predict: Literal["personal", "global"] = "personal"
    """Prompt that a node classifies with: its own, or the global one, which fits new classes
    better."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        bounded("policy.rank", self.rank, 1)
        bounded("policy.contrast", self.contrast, 0)
        positive("policy.temperature", self.temperature)
