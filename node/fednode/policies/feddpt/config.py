"""Fed-DPT's settings: the paper's values, the ablations of its tables 5 and 6, and open choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.settings import MomentSettings
from fednode.core.settings import bounded, positive
from fednode.policies import domains


@dataclass(frozen=True, slots=True, kw_only=True)
class FedDPTConfig(MomentSettings):
    """Fed-DPT (Wei et al.): a text prompt for each domain.

    docs/divergence.md compares these settings with the paper.
    """

    domains: tuple[str, ...] = ()
    """All domains of the mesh, in the same order on all nodes. Each node names its own domain in
    data.domain."""
    components: Literal["full", "visual", "text", "agnostic"] = "full"
    """What is tuned (table 5). full: all. visual or text: one kind of prompt. agnostic: both
    kinds, with one text prompt for all domains and no weighting between domains."""
    text: Literal["ema", "replace", "train_all"] = "ema"
    """How the text prompts of other domains arrive (table 6a). ema: by a moving average. replace:
    at once. train_all: every node trains all of them."""
    alpha: float = 0.99
    """Decay of that moving average at each step (equation 8); nearer 1 is smoother and older."""
    visual: Literal["average", "split_ema", "split"] = "average"
    """Visual tokens (table 6b). average: every node trains all, and they are averaged. split_ema
    or split: each domain's nodes train its token, and the others receive it by a moving average,
    or at once."""
    temperature: float = 0.1
    """tau_d of equation 5. A lower value attends to fewer domains."""
    score: Literal["scaled", "cosine", "raw"] = "scaled"
    """The product of query and key in equation 5. scaled: divided by the root of the head width
    and averaged over heads. cosine: the cosine. raw: the plain product over all heads."""
    loss: Literal["cosine", "ce"] = "cosine"
    """cosine: equation 9. ce: cross-entropy over the node's classes (equation 10)."""
    optimizer: Literal["keep", "reset"] = "keep"

    def __post_init__(self) -> None:
        MomentSettings.__post_init__(self)
        domains.check(self.domains, 1)
        bounded("policy.alpha", self.alpha, 0, 1)
        positive("policy.temperature", self.temperature)
        if self.wire_dtype == "int8":
            raise ValueError("policy.wire_dtype is int8; Fed-DPT's prompts take float16 or more.")
