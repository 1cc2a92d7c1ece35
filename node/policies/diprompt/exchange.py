"""DiPrompT (CVPR 2024): a global prompt and a prompt per domain, each merged over its trainers.

All nodes draw the same H of K nodes, which tune in a round; all nodes receive and merge. A
contribution holds the changes of the prompts that training moved, and no others. So the presence of
a prompt is the indicator of equation 4, and the weights are the nodes' own counts of images. Each
domain prompt is kept twice: as merged, and as its beta moving average (equation 5). All nodes start
and predict from the average.
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
from fednode.core.types import Array, Job, Json, Report, Tensors
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
            return domains.settings_fault(config.domains, domain) or super().settings_fault(
                config, rounds, domain
            )
        return super().settings_fault(config, rounds, domain)

    @classmethod
    def paper_bytes(
        cls, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int:
        """Return the bytes of all prompts, up and down, of the drawn clients alone."""
        drawn = min(config.participants or clients, clients)
        return rounds * drawn * 2 * sum(map(math.prod, shapes.values())) * 4

    def first(self, initial: Tensors) -> MethodState:
        """Return the state before round 1: the moving averages equal the prompts."""
        if not self.config.momentum:
            return MethodState(initial)
        names = [name for name in initial if name.startswith(DOMAIN)]
        weight = alpha(0, max(1, self.context.rounds.max), self.config.beta)
        raw: dict[str, Array] = {RAW + name: initial[name] for name in names}
        sums = {SUM + name: np.array([weight], dtype=np.float32) for name in names}
        return MethodState(initial, arrays=Tensors({**raw, **sums}))

    @property
    def drifts(self) -> bool:
        """True: changes are added to prompts and moving averages."""
        return True

    def participants(self, number: int) -> tuple[str, ...]:
        """Return the nodes that tune in a round, drawn from all nodes of peers.yaml."""
        everyone = sorted({*self.context.peers, self.context.name})
        count = self.config.participants or len(everyone)
        if count >= len(everyone):
            return tuple(everyone)
        generator = self.context.common_random(number, "participants")
        return tuple(sorted(generator.sample(everyone, count)))

    def job(self, now: Round) -> Job | None:
        """Train all prompts if this node is drawn."""
        drawn = self.context.name in self.participants(now.number)
        return self.training(now, now.draft.shared) if drawn else None

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
        for name in now.draft.shared:
            moved = [one for one in given if name in one.tensors]
            if not moved:
                continue
            weights = weights_of([one.samples for one in moved], self.config.samples_cap)
            still = {name: np.zeros_like(shared[name])}
            told = [{name: one.tensors[name]} for one in moved]
            change = combine(self.config.merge, told, weights, still)[name]
            if name.startswith(DOMAIN) and self.config.momentum:
                arrays[RAW + name] = arrays[RAW + name] + change
                self._average(now.number, name, shared, arrays)
            else:
                shared[name] = shared[name] + change
        return replace(now.draft, shared=Tensors(shared), arrays=Tensors(arrays))

    def _average(
        self, number: int, name: str, shared: dict[str, Array], arrays: dict[str, Array]
    ) -> None:
        """Move a prompt's average (equation 5), and add to its sum of weights."""
        weight = alpha(number, self.context.rounds.max, self.config.beta)
        before = max(0.0, float(arrays[SUM + name][0]))  # a state taken over may hold any number
        mixed = [shared[name], arrays[RAW + name]]
        shared[name] = mean(mixed, [before, weight])
        arrays[SUM + name] = np.array([before + weight], dtype=np.float32)
