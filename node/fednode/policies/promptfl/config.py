"""Settings of PromptFL."""

from __future__ import annotations

from dataclasses import dataclass

from fednode.core.rounds.averaging import AveragingConfig


@dataclass(frozen=True, slots=True)
class PromptFLConfig(AveragingConfig):
    """PromptFL (Guo et al. 2023): one prompt, averaged in every round."""
