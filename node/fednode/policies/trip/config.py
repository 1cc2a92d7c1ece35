"""Settings of TRIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import bounded, positive

EXPERTS_MOST: Final = 8


@dataclass(frozen=True, slots=True)
class TRIPConfig(AveragingConfig):
    """TRIP (Gong et al., IEEE TIP): shared prompts, mixed for each image by routing its tokens.

    The routing has no parameters: an image's tokens are clustered, and clusters take the prompts by
    fixed keys.
    """

    experts: int = 4
    """E: number of shared prompts, 1 to 8. Each has tuning.context_length vectors; 4 of 32 are the
    paper's 65,536 numbers with ViT-B/16."""
    teach: float = 1.0
    """alpha: weight of the cross-entropy with zero-shot CLIP's probabilities; 0: off."""
    teacher: Literal["ensemble", "template"] = "ensemble"
    """Texts of zero-shot CLIP there. ensemble: the mean over open_clip's templates for ImageNet.
    template: tuning.template."""
    average: bool = True
    """true: predict with the beta moving average of the merged prompts; needs rounds.max."""
    beta: float = 0.2
    """beta of that average's weights. Below 1, the first and the last rounds count most."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        bounded("policy.experts", self.experts, 1, EXPERTS_MOST)
        bounded("policy.teach", self.teach, 0)
        positive("policy.beta", self.beta)
