"""PLAN's settings: the paper's values, the ablations of its table VI, and open choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.settings import MeshWideSettings
from fednode.core.settings import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig(MeshWideSettings):
    """PLAN (IEEE TIFS): deep prompts in both towers, merged by learned aggregators.

    docs/divergence.md compares these settings with the paper.
    """

    kl: float = 1.0
    """alpha of equation 10: weight of the distance to the global prompts; 0: off."""
    first_teacher: Literal["zero_shot", "none"] = "zero_shot"
    """The teacher in round one, when there are no global prompts."""
    aggregators: Literal["both", "visual", "text", "none"] = "both"
    """Towers whose prompts an aggregator merges (table VI); the other prompts are averaged."""
    description: Literal["sentence", "name"] = "sentence"
    """The text behind the text prompts: the sentence "a photo of a CLASS." (equation 2), or the
    bare name of the class, as in the released code."""
    depth: int = 0
    """Blocks with prompts of their own, in both towers (figure 3a); 0: all."""
    reduction: int = 8
    """An aggregator has width / reduction hidden units."""
    tied: bool = False
    """true: all blocks of a tower share one aggregator, which takes a twelfth of the bytes."""
    residual: bool = False
    """true: the global prompts are the weighted mean of the local prompts plus F_a of them, where
    F_a starts at zero (an addition of fednode). false: as in the paper, F_a alone."""
    wire_dtype: Literal["float32", "float16"] = "float32"
    aggregator_dtype: Literal["float32", "float16"] = "float32"
    """Number format of aggregators in messages. With ViT-B/16 they take 21 MB in float32."""

    def __post_init__(self) -> None:
        MeshWideSettings.__post_init__(self)
        bounded("policy.kl", self.kl, 0)
        bounded("policy.depth", self.depth, 0)
        bounded("policy.reduction", self.reduction, 1)

    @property
    def words(self) -> str:
        """Words between the text prompts and the name of a class."""
        return "a photo of a" if self.description == "sentence" else ""

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Names of the prompts that an aggregator merges; the others are averaged."""
        return {"both": ("text", "visual"), "none": ()}.get(self.aggregators, (self.aggregators,))
