"""Settings of FedOTP."""

from __future__ import annotations

from dataclasses import dataclass

from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import positive


@dataclass(frozen=True, slots=True)
class FedOTPConfig(AveragingConfig):
    """FedOTP (Li et al., CVPR 2024): a global prompt is averaged, a local prompt stays private.

    An image is compared with both prompts patch by patch, by optimal transport.
    """

    mass: float = 0.8
    """gamma: the share of the patches that the prompts take up, above 0, at most 1. Below 1 the
    patches that fit no prompt are left out; 1 is balanced transport, which takes all."""
    epsilon: float = 0.1
    """Weight of the plan's entropy. A smaller value gives a sharper plan and takes more steps."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        positive("policy.mass", self.mass, 1)
        positive("policy.epsilon", self.epsilon)
