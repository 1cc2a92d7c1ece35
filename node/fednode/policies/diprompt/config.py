"""DiPrompT's settings: the paper's values, the ablations of its table 3, and open choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fednode.core.rounds.settings import MomentSettings
from fednode.core.settings import bounded, positive
from fednode.policies import domains


@dataclass(frozen=True, slots=True, kw_only=True)
class DiPrompTConfig(MomentSettings):
    """DiPrompT (CVPR 2024): a global prompt, and a prompt for each domain.

    docs/divergence.md compares these settings with the paper.
    """

    domains: tuple[str, ...] = ()
    """Names of all source domains. The domain of an image need not be known."""
    prompts: Literal["both", "global", "domains"] = "both"
    """Prompts that are tuned (table 3): both kinds, or the global prompt or the domain prompts
    alone."""
    domain_weight: float = 1.0
    """lambda: weight of the loss of the domain prompts."""
    contrast: bool = True
    """true: use the contrastive term of equation 3, which keeps domain prompts apart."""
    query: Literal["learn", "written", "labels"] = "learn"
    """How an image's domain is found (equation 6). learn: by Q prompts that are tuned. written: by
    the words from which Q prompts start. labels: data.domain is the domain."""
    query_length: int = 4
    """Number of vectors of Q. Q starts from the words "a photo of a", repeated or cut to this
    length."""
    query_mse: bool = True
    """true: use the feature term of equation 7."""
    query_kl: bool = True
    """true: use the logits term of equation 7."""
    query_supervised: float = 1.0
    """Weight of -log sum_m P(y, m | x), an addition of fednode: without it equation 7 never moves
    Q (docs/divergence.md)."""
    momentum: bool = True
    """true: start from the beta moving average of the domain prompts (equation 5); needs
    rounds.max."""
    adds_to: Literal["merged", "sent"] = "merged"
    """What equation 4 adds the changes of domain prompts to. merged: to the prompts V that were
    merged last, which are kept beside their moving averages. sent: to the moving averages from
    which the nodes started, so that nothing else is kept. Only with momentum."""
    beta: float = 0.2
    """beta of that average's weights. Below 1, the first and the last rounds count most."""
    ensemble: Literal["dynamic", "top"] = "dynamic"
    """Prediction. dynamic: equation 8. top: the nearest domain's prompt alone."""

    def __post_init__(self) -> None:
        MomentSettings.__post_init__(self)
        domains.check(self.domains, 1)
        bounded("policy.domain_weight", self.domain_weight, 0)
        bounded("policy.query_length", self.query_length, 1)
        bounded("policy.query_supervised", self.query_supervised, 0)
        positive("policy.beta", self.beta)
        if self.wire_dtype == "int8":
            raise ValueError("policy.wire_dtype is int8; DiPrompT's prompts take float16 or more.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the exchanged prompts, [context length, width] each."""
        common = () if self.prompts == "domains" else (GLOBAL,)
        return common if self.prompts == "global" else (*common, *map(slot, self.domains))

    @property
    def names_told(self) -> str:
        """Why noise does not hide all that a node sends, as half a sentence; "" if it does."""
        if self.query == "labels" or self.prompts == "global":
            return ""
        return (
            "policy diprompt sends the prompts of those domains alone in which it sees images, "
            "which no noise hides: set policy.query to labels, remove privacy.clip, or take "
            "another policy"
        )

    @property
    def moves_query(self) -> bool:
        """Tell whether the loss of Q has any term."""
        return bool(self.query_mse or self.query_kl or self.query_supervised)


GLOBAL = "global"
DOMAIN = "domain."


def slot(domain: str) -> str:
    """Return the name of a domain's prompt."""
    return DOMAIN + domain
