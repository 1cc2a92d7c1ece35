"""The policy of PromptFL, FedMaPLe, FedCLIP and FedTPG: everyone tunes, everyone gets the mean.

Federated averaging without a server: all send to all and compute the same mean. In int8 the nodes
send what training changed, and each adds to its next change what rounding took from its last
(error feedback), so that nothing is lost for good; that needs equal prompts to begin from, so sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from node.core.aggregate import weights_of
from node.core.method import OWN, Contribution, Held
from node.core.numbers import roundtrip
from node.core.robust import combine
from node.core.rounds import Staged
from node.core.settings import STRICT, Barrier, MergeSettings, RoundSettings, bounded
from node.core.types import EMPTY, Dtype, Report, Tensors


@dataclass(frozen=True, slots=True)
class AveragingConfig:
    """Settings of federated averaging.

    weights: "samples" (FedAvg, as papers have it) or "equal" (as their codes have it). samples_cap:
    most images that a node's word is taken for, 0 for any number: its weight is its own word.
    optimizer: "reset" it in every round, or "keep" its momentum. wire_dtype: int8 sends changes
    with error feedback, a quarter of float32's bytes.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    weights: Literal["samples", "equal"] = "samples"
    samples_cap: int = 0
    optimizer: Literal["keep", "reset"] = "reset"
    wire_dtype: Dtype = "float32"
    merge: MergeSettings = field(default_factory=MergeSettings)

    def __post_init__(self) -> None:
        bounded("policy.samples_cap", self.samples_cap, 0)


class Averaging(Staged):
    """See the file's header."""

    config_type: ClassVar[type[AveragingConfig]] = AveragingConfig
    modes: ClassVar[tuple[Barrier, ...]] = ("sync", "quorum", "async")

    @classmethod
    def unfit(cls, config: AveragingConfig, rounds: RoundSettings, domain: str) -> str:
        """Refuse int8 where nodes may begin a round from different prompts."""
        mode = rounds.mode or cls.default_mode
        if config.wire_dtype == "int8" and mode != "sync":
            return f"policy.wire_dtype is int8, which needs rounds.mode sync; it is {mode}."
        return super().unfit(config, rounds, domain)

    @property
    def drifts(self) -> bool:
        """Changes alone are merged in int8."""
        return super().drifts or bool(self.config.wire_dtype == "int8")

    def contribution(self, stage: str, report: Report | None) -> Tensors:
        """Return the tuned tensors, or in int8 what changed and was not told yet."""
        if report is None or self.config.wire_dtype != "int8":
            return super().contribution(stage, report)
        before, owed = self.draft.shared, self.draft.arrays
        change = Tensors(
            {
                name: one - before[name] + owed.get(OWN + name, 0.0)
                for name, one in report.tensors.items()
            }
        )
        told = roundtrip(change, "int8")
        left = Tensors({OWN + name: one - told[name] for name, one in change.items()})
        self.draft = replace(self.draft, arrays=left)
        return change

    def merge(self, stage: str, heard: Sequence[Contribution]) -> Held:
        """Return the (weighted) mean of all contributions, or a robust merge in its place."""
        equal, cap = self.config.weights == "equal", self.config.samples_cap
        given = [one for one in heard if one.tensors]
        said = [one.samples for one in given]
        weights = [1.0] * len(given) if equal else weights_of(said, cap)
        before = self.draft.shared
        changes = self.config.wire_dtype == "int8"
        tensors = [_added(before, one.tensors) if changes else one.tensors for one in given]
        carry = EMPTY if self.config.optimizer == "reset" else self.draft.carry
        shared = combine(self.config.merge, tensors, weights, before, moored=self.moored)
        return replace(self.draft, shared=shared, carry=carry)


def _added(before: Tensors, change: Tensors) -> Tensors:
    return Tensors({name: before[name] + one for name, one in change.items()})
