"""PLAN's settings: the paper's, the ablations of its table VI, and what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from node.core.settings import STRICT, MergeSettings, bounded


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """Settings of PLAN (IEEE TIFS; docs/divergence.md tells what is whose).

    kl: weight alpha of the pull towards the global prompts (equation 10), 0 for none.
    first_teacher: whom round one is pulled to, "zero_shot" or "none".
    aggregators: which towers have one, "both", "visual", "text" or "none" (plain mean) (table VI).
    reduction: of the bottleneck, width / reduction hidden units. tied: one aggregator for all
    blocks of a tower instead of one each. residual: global prompts are the weighted mean of the
    local ones plus what F_a makes of them, which starts at zero; off as in the paper, where F_a
    must learn from noise.
    aggregator_dtype: how the large arrays of the second exchange travel.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    kl: float = 1.0
    first_teacher: Literal["zero_shot", "none"] = "zero_shot"
    aggregators: Literal["both", "visual", "text", "none"] = "both"
    reduction: int = 8
    tied: bool = False
    residual: bool = False
    wire_dtype: Literal["float32", "float16"] = "float32"
    aggregator_dtype: Literal["float32", "float16"] = "float32"
    merge: MergeSettings = field(default_factory=MergeSettings)

    def __post_init__(self) -> None:
        bounded("policy.kl", self.kl, 0)
        bounded("policy.reduction", self.reduction, 1)

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Names of the prompts that an aggregator makes; the others are averaged."""
        return {"both": ("text", "visual"), "none": ()}.get(self.aggregators, (self.aggregators,))
