"""Settings of policy gda."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.settings import STRICT
from fednode.core.types import Dtype


@dataclass(frozen=True, slots=True)
class GDAConfig:
    """Gaussian discriminant analysis from nodes' class sums, without gradients."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    share: Literal["means", "sums"] = "means"
    """What a node sends. means: for each class, the number of its images and the sum of their
    features. sums: also the sum of x x^T over its images, which is better with many images, and
    from which members can find every image of a node that has few."""
    predict: Literal["personal", "global"] = "personal"
    """Classifier of a node. personal: for its own classes, the node's means drawn to the mesh's,
    and the node alone where its images say so; for other classes, the mesh's. global: always the
    mesh's, which fits images of a kind that the node does not have."""
    few_images: bool = False
    """Only with share: sums. true: send sums of fewer images than four times the features' width,
    which tell members the images themselves. Experiments only: a node refuses to start with it."""
    classes_max: int = 256
    """Most classes of one node that count at the others; as many as half of the nodes have, if that
    is more. Each class costs each node memory and time in each round. Of more classes those that
    other nodes have, too, count first; log and status say whose are left out."""
    wire_dtype: ClassVar[Dtype] = "float32"

    def __post_init__(self) -> None:
        if not 1 <= self.classes_max <= 4096:
            raise ValueError(
                f"policy.classes_max is {self.classes_max}; it must be from 1 to 4096, the classes "
                "that one message names."
            )

    @property
    def experiments_only(self) -> str:
        """Return why a node refuses these settings; "" if it does not."""
        if not self.few_images:
            return ""
        return (
            "policy.few_images is true: sums of few images tell members the images themselves, so "
            "this setting is for experiments; remove it."
        )
