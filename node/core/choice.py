"""What a node uses after a mesh-wide round: what all merged, or what it tuned itself.

A merge that all agree on may still make one node worse: its images differ from the others', or some
of them lie. With guard.merged_rise set, a node whose validation loss l is

    l(merged) > l(own) + merged_rise

measures, predicts and exports with its own prompts of the round. Nothing else changes: it goes on
exchanging, and the next round begins where everyone's does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from node.core.types import Tensors


@dataclass(slots=True)
class Choice:
    """Merged prompts against a node's own, to be measured one after the other."""

    merged: Tensors
    own: Tensors
    rise: float
    losses: list[float] = field(default_factory=list)

    def candidate(self) -> Tensors | None:
        """Return what to measure next; None once the choice stands.

        A node that cannot measure (it keeps no validation images) is not asked twice.
        """
        if not self.losses:
            return self.merged
        return self.own if len(self.losses) == 1 and math.isfinite(self.losses[0]) else None

    def note(self, metrics: Mapping[str, float]) -> None:
        """Take what was measured."""
        self.losses.append(metrics.get("validation_loss", float("nan")))

    @property
    def alone(self) -> bool:
        """Tell whether the node does better by itself."""
        return len(self.losses) == 2 and self.losses[0] > self.losses[1] + self.rise

    def told(self) -> str:
        """Say why the node uses its own prompts."""
        merged, own = self.losses
        return (
            f"the own prompts are used: the merged ones' validation loss is {merged:.3g}, "
            f"theirs {own:.3g} (guard.merged_rise: {self.rise:g})"
        )
