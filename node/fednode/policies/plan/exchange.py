"""PLAN (Gong et al., IEEE TIFS): tune towards the global prompts, then learn how to merge them.

A round has two stages and two exchanges. In "prompts", each node tunes local prompts T_k, V_k,
starting from the global ones and pulled towards them (equation 10), and sends them to all. In
"aggregators", the local prompts are fixed. Each node trains the aggregators on its own images
(equation 15) and sends them to all. Every node then makes the next global prompts with the mean of
the aggregators (equation 16). A digest ties the second exchange to the contributions of the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from fednode.core.merge.robust import combine, tame
from fednode.core.policy import NodeContext
from fednode.core.rounds.method import Contribution, Method, MethodState, Round
from fednode.core.types import EMPTY, Array, Dtype, Job, Json, Tensors
from fednode.policies.plan.aggregator import aggregate, split
from fednode.policies.plan.config import PlanConfig

PROMPTS = "prompts"
AGGREGATORS = "aggregators"


class Plan(Method):
    """PLAN's jobs and merges in mesh-wide rounds; see the file's header."""

    name: ClassVar[str] = "plan"
    config_type: ClassVar[type[PlanConfig]] = PlanConfig
    stages: tuple[str, ...] = (PROMPTS, AGGREGATORS)
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 8,
        "lr": 0.0015,
        "batch_size": 32,
        "weight_decay": 5e-4,
        "schedule": "constant",
    }

    def __init__(self, config: PlanConfig, context: NodeContext) -> None:
        super().__init__(config, context)
        if not config.aggregated:
            self.stages = (PROMPTS,)

    @classmethod
    def paper_bytes(
        cls, config: PlanConfig, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int:
        """Return the bytes of both stages: prompts up, all clients' prompts down, aggregators."""
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        prompts = sum(size for name, size in sizes.items() if name in {"text", "visual"})
        aggregators = sum(sizes.values()) - prompts
        up, down = prompts + aggregators, prompts + clients * prompts + aggregators
        return rounds * clients * (up + down) * 4

    def shapes(self, stage: str, held: MethodState) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the stage's arrays: prompts or aggregators."""
        return self._part(stage, held.shared).shapes

    def dtype(self, stage: str) -> Dtype:
        """Return the stage's dtype; aggregators may travel in a narrower dtype than prompts."""
        dtype: Dtype = self.config.wire_dtype
        return self.config.aggregator_dtype if stage == AGGREGATORS else dtype

    def job(self, now: Round) -> Job:
        """Train prompts towards the global ones, or aggregators over the local prompts."""
        trained = self._part(now.stage, now.draft.shared)
        if now.stage == PROMPTS:
            # There are no global prompts before the first round is over.
            reference = trained if now.number > 1 else EMPTY
            return replace(self.training(now, trained, reference), carry=EMPTY)
        locals_ = {
            f"{at:03d}/{name}": array
            for at, prompts in enumerate(self._local(now.heard[PROMPTS]))
            for name, array in prompts.items()
        }
        return replace(self.training(now, trained, Tensors(locals_)), carry=EMPTY)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Keep the draft after "prompts"; after the last stage make the global prompts."""
        if now.stage != self.stages[-1]:
            return now.draft
        local = self._local(given if now.stage == PROMPTS else now.heard[PROMPTS])
        told = [
            contribution.tensors
            for contribution in given
            if contribution.tensors and now.stage == AGGREGATORS
        ]
        prompts, before = split(now.draft.shared)
        rule, agrees = self.config.merge, now.base_agrees
        aggregators = combine(rule, told, [1.0] * len(told), before, base_agrees=agrees)
        merged: dict[str, Array] = {}
        for name in prompts:
            if not local:
                merged[name] = prompts[name]
            elif name in self.config.aggregated:
                arrays = [local_prompts[name] for local_prompts in local]
                merged[name] = aggregate(aggregators, name, arrays, self.config.residual)
            else:
                each = [{name: local_prompts[name]} for local_prompts in local]
                kept = {name: prompts[name]}
                merged |= combine(rule, each, [1.0] * len(each), kept, base_agrees=agrees)
        return replace(now.draft, shared=Tensors({**merged, **aggregators}), carry=EMPTY)

    def _local(self, given: Sequence[Contribution]) -> tuple[Tensors, ...]:
        """Return a round's local prompts, in the order of their senders."""
        return self._tamed([contribution.tensors for contribution in given if contribution.tensors])

    def _tamed(self, given: Sequence[Tensors]) -> tuple[Tensors, ...]:
        """Return the local prompts clipped by the merge rule, once for training and merging.

        The aggregators learn from these prompts. If they were clipped only later, the learned
        weights would be wrong for the clipped prompts.
        """
        rule = self.config.merge
        tamed: list[dict[str, Array]] = [dict(prompts) for prompts in given]
        for name in self.config.aggregated:
            held = [prompts for prompts in tamed if name in prompts]
            for prompts, array in zip(
                held, tame(rule, [prompts[name] for prompts in held]), strict=True
            ):
                prompts[name] = array
        return tuple(Tensors(prompts) for prompts in tamed)

    def _part(self, stage: str, tensors: Tensors) -> Tensors:
        prompts, aggregators = split(tensors)
        return prompts if stage == PROMPTS else aggregators
