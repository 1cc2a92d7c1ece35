"""Fed-DPT (Wei et al.): a text prompt per domain, trained by its owners; visual tokens by all.

The owners of a text slot are the nodes of its domain. The slot holds what its owners sent last, or
their mean if they are several; while no owner is live, it keeps its value. Visual tokens are
averaged over all nodes, or have owners as well (`visual: split`). Others' slots enter a node's own
training by a moving average inside the job (equation 8). So the adopted slots are exactly the
received ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fednode.core.merge.robust import combine
from fednode.core.rounds.method import Contribution, Method, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import EMPTY, Job, Json, Tensors
from fednode.policies import domains
from fednode.policies.feddpt.config import FedDPTConfig
from fednode.policies.feddpt.slots import trained


class FedDPT(Method):
    """Fed-DPT's jobs and merges in mesh-wide rounds; see the file's header."""

    name: ClassVar[str] = "feddpt"
    config_type: ClassVar[type[FedDPTConfig]] = FedDPTConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 16,
        "optimizer": "adamw",
        "lr": 5e-4,
        "weight_decay": 0.01,
        "batch_size": 32,
        "schedule": "constant",
    }

    @classmethod
    def settings_fault(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Refuse a node whose domain is not one of the mesh's."""
        return domains.settings_fault(config.domains, domain)

    @classmethod
    def paper_bytes(
        cls, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int:
        """Return the bytes of one text slot and all visual tokens up, and of all arrays down."""
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        text = max((size for name, size in sizes.items() if name.startswith("text.")), default=0)
        visual = sum(size for name, size in sizes.items() if name.startswith("visual."))
        return rounds * clients * (text + visual + sum(sizes.values())) * 4

    @property
    def drifts(self) -> bool:
        """Tell whether nodes that differ may stay different.

        If nodes are drawn, a slot keeps its value in rounds in which none of its owners is drawn.
        """
        return super().drifts or self.config.participants > 0

    def job(self, now: Round) -> Job:
        """Train the node's own arrays; the others' arrays are the reference."""
        mine = trained(self.config, self.context.domain)
        own = {name: array for name, array in now.draft.shared.items() if name in mine}
        rest = {name: array for name, array in now.draft.shared.items() if name not in mine}
        return self.training(now, Tensors(own), Tensors(rest))

    def complete(self, names: frozenset[str], expected: frozenset[str]) -> bool:
        """Accept the full set of arrays that the nodes of some domain train, and nothing else."""
        return any(names == trained(self.config, domain) for domain in self.config.domains)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Return each array's unweighted mean over its senders (Algorithm 1, line 16)."""
        tensors, before = [contribution.tensors for contribution in given], now.draft.shared
        weights, agrees = [1.0] * len(tensors), now.base_agrees
        shared = combine(self.config.merge, tensors, weights, before, base_agrees=agrees)
        keep = self.config.optimizer == "keep"
        return replace(now.draft, shared=shared, carry=now.draft.carry if keep else EMPTY)
