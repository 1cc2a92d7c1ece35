"""Fed-DPT's settings: the paper's, the ablations of its tables 5 and 6, and what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from node.core import domains
from node.core.settings import STRICT, MergeSettings, bounded, positive
from node.core.types import Dtype


@dataclass(frozen=True, slots=True)
class FedDPTConfig:
    """Settings of Fed-DPT (Wei et al.; docs/divergence.md tells what is whose).

    domains: of the mesh; slot k of the prompts belongs to the nodes whose data.domain is the k-th.
    components (table 5): "full"; "visual" and "text" tune one kind of prompt; "agnostic" both, with
    one text prompt for all domains and no weighting between them.
    text (table 6a): others' prompts come in by a moving average ("ema"), at once ("replace"), or
    everyone trains all of them ("train_all"). alpha: of the average, per step (equation 8).
    visual (table 6b): everyone trains all visual tokens and they are averaged ("average"), or each
    domain's token by its own nodes, the others' coming in by "split_ema" or "split".
    temperature: tau_d of equation 5. score: its products of query and key, "scaled" by the root of
    the head width and averaged over heads, as "cosine", or "raw" over all heads together.
    loss: "cosine", equation 9, or "ce", equation 10 over the node's classes.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    domains: tuple[str, ...] = ()
    components: Literal["full", "visual", "text", "agnostic"] = "full"
    text: Literal["ema", "replace", "train_all"] = "ema"
    alpha: float = 0.99
    visual: Literal["average", "split_ema", "split"] = "average"
    temperature: float = 0.1
    score: Literal["scaled", "cosine", "raw"] = "scaled"
    loss: Literal["cosine", "ce"] = "cosine"
    optimizer: Literal["keep", "reset"] = "keep"
    wire_dtype: Dtype = "float32"
    merge: MergeSettings = field(default_factory=MergeSettings)

    def __post_init__(self) -> None:
        domains.check(self.domains, 1)
        bounded("policy.alpha", self.alpha, 0, 1)
        positive("policy.temperature", self.temperature)
        if self.wire_dtype == "int8":
            raise ValueError("policy.wire_dtype is int8; Fed-DPT's prompts take float16 or more.")
