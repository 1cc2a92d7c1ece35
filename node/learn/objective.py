"""What a policy's prompts mean: how they start, what they lose on a batch, what they predict.

A policy's folder holds its objective in `objective.py`, as the class `Objective`. The learner owns
data, optimizer and rounds; the objective owns the forward pass. It is stateless between calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from node.clip.backbone import Backbone
from node.core.types import Tensors
from node.learn.settings import TuningSettings

Parameters = Mapping[str, Tensor]
"""The exchanged arrays as float32 tensors on the model's device, by name."""


class Objective(Protocol):
    """See the file's header. Labels index the class names given with them."""

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any) -> None:
        """Take the frozen model, the tuning settings and the policy's own configuration."""
        ...

    def initial(self, seed: int) -> Tensors:
        """Return the prompts that round 1 starts from, equal for equal seeds."""
        ...

    def loss(
        self,
        prompts: Parameters,
        reference: Parameters,
        features: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
    ) -> Tensor:
        """Return the scalar loss of a batch: unit image features [B, D], labels [B]."""
        ...

    def logits(
        self, prompts: Parameters, reference: Parameters, features: Tensor, classes: tuple[str, ...]
    ) -> Tensor:
        """Return logits [B, classes] of unit image features [B, D]."""
        ...

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return logits [B, classes] of the hand-written prompt, nothing learned."""
        ...
