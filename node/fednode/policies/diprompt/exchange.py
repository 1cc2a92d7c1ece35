"""DiPrompT (CVPR 2024): a global prompt and a prompt per domain, each merged over its trainers.

A contribution holds the changes of the prompts that training moved, and no others. So the presence
of a prompt is the indicator of equation 4, and the weights are the nodes' own counts of images.
Each domain prompt is kept twice: as merged, and as its beta moving average (equation 5). All nodes
start and predict from the average. With `adds_to: sent`, the average alone is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from fednode.core.merge.mean import mean, weights_of
from fednode.core.merge.momentum import alpha
from fednode.core.merge.robust import combine
from fednode.core.rounds.method import Contribution, Method, MethodState, Round, Sent
from fednode.core.settings import RoundSettings
from fednode.core.types import Array, Json, Report, Tensors
from fednode.policies import domains
from fednode.policies.diprompt.config import DOMAIN, DiPrompTConfig

RAW: Final = "raw/"
"""Prefix of the merged prompts V; the shared prompts are their moving averages."""
SUM: Final = "sum/"
"""Prefix of a domain's A_r; rounds in which no node changed its prompt do not count."""


class DiPrompT(Method):
    """DiPrompT's jobs and merges in mesh-wide rounds; see the file's header."""

    name: ClassVar[str] = "diprompt"
    config_type: ClassVar[type[DiPrompTConfig]] = DiPrompTConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "init_words": "a photo of a",
        "optimizer": "adam",
        "lr": 5e-4,
        "weight_decay": 0.0,
        "batch_size": 16,
        "schedule": "constant",
    }

    @classmethod
    def settings_fault(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Refuse a run without an end, and a missing domain if `query` is "labels"."""
        if config.momentum and not rounds.max:
            return "rounds.max is 0; DiPrompT's moving average needs to know how many there are."
        if config.query == "labels":
            return domains.settings_fault(config.domains, domain)
        return ""

    @classmethod
    def paper_bytes(
        cls, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int:
        """Return the bytes of all prompts, up alone: figure 5 counts uploads."""
        return rounds * clients * sum(map(math.prod, shapes.values())) * 4

    def first(self, initial: Tensors) -> MethodState:
        """Return the state before round 1: the moving averages equal the prompts."""
        if not self.config.momentum:
            return MethodState(initial)
        names = [name for name in initial if name.startswith(DOMAIN)]
        weight = alpha(0, max(1, self.context.rounds.max), self.config.beta)
        kept = names if self.config.adds_to == "merged" else []
        raw: dict[str, Array] = {RAW + name: initial[name] for name in kept}
        sums = {SUM + name: np.array([weight], dtype=np.float32) for name in names}
        return MethodState(initial, arrays=Tensors({**raw, **sums}))

    @property
    def drifts(self) -> bool:
        """True: changes are added to prompts and moving averages."""
        return True

    def complete(self, names: frozenset[str], expected: frozenset[str]) -> bool:
        """Accept any subset of the prompts: a contribution holds those that changed."""
        return True

    def contribution(self, now: Round, report: Report) -> Sent:
        """Return the changes of the prompts that training moved."""
        before = now.draft.shared
        changes = {name: report.tensors[name] - before[name] for name in report.changed}
        return Sent(Tensors(changes), now.draft)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Add the weighted mean change of each prompt over the nodes that changed it (eq. 4)."""
        shared, arrays = dict(now.draft.shared), dict(now.draft.arrays)
        carry = dict(now.draft.carry)
        for name in now.draft.shared:
            moved = [contribution for contribution in given if name in contribution.tensors]
            if not moved:
                continue
            weights = weights_of([contribution.samples for contribution in moved])
            still = {name: np.zeros_like(shared[name])}
            told = [{name: contribution.tensors[name]} for contribution in moved]
            change = combine(self.config.merge, told, weights, still)[name]
            if name.startswith(DOMAIN) and self.config.momentum:
                raw = arrays.get(RAW + name, shared[name]) + change
                if RAW + name in arrays:
                    arrays[RAW + name] = raw
                self._average(now.number, name, raw, shared, arrays)
            else:
                shared[name] = shared[name] + change
            if self.config.optimizer == "reset":
                carry = {
                    key: array for key, array in carry.items() if not key.startswith(f"{name}/")
                }
        merged = replace(now.draft, shared=Tensors(shared), arrays=Tensors(arrays))
        return replace(merged, carry=Tensors(carry))

    def _average(
        self,
        number: int,
        name: str,
        raw: Array,
        shared: dict[str, Array],
        arrays: dict[str, Array],
    ) -> None:
        """Move a prompt's average towards V, `raw` (equation 5), and add to its sum of weights."""
        weight = alpha(number, self.context.rounds.max, self.config.beta)
        before = max(0.0, float(arrays[SUM + name][0]))  # a state taken over may hold any number
        shared[name] = mean([shared[name], raw], [before, weight])
        arrays[SUM + name] = np.array([before + weight], dtype=np.float32)
