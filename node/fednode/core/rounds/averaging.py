"""The policy of PromptFL, FedMaPLe, FedCLIP, FedTPG, FedOTP and FedPGP: the mean of what was tuned.

This is federated averaging without a server: each node sends to all others, and all compute the
same mean. In int8 the nodes send what training changed. Each node adds the rounding error of its
last change to its next change (error feedback), so that no error is lost for good.

An objective may train private tensors, too (FedOTP's local prompt). They stay in the learner's
carry, through every merge, and the node uses them beside the merged tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from fednode.core.merge.mean import weights_of
from fednode.core.merge.numbers import roundtrip
from fednode.core.merge.robust import combine
from fednode.core.rounds.engine import Method
from fednode.core.rounds.method import Contribution, MethodState, MomentSettings, Round, Sent
from fednode.core.types import OWN, PRIVATE, Report, Tensors


@dataclass(frozen=True, slots=True)
class AveragingConfig(MomentSettings):
    """Federated averaging."""

    weights: Literal["samples", "equal"] = "samples"
    """Weight of a node in the mean. samples: its number of images, as the node states it (FedAvg).
    equal: the same for all nodes, as in the papers' code."""
    paper_number_bytes: ClassVar[int] = 4  # bytes that the method's paper counts for a number


class Averaging(Method):
    config_type: ClassVar[type[AveragingConfig]] = AveragingConfig

    @classmethod
    def paper_bytes(
        cls,
        config: AveragingConfig,
        shapes: Mapping[str, tuple[int, ...]],
        rounds: int,
        clients: int,
    ) -> int:
        """Return the bytes of all arrays, up and down."""
        numbers = sum(map(math.prod, shapes.values()))
        return rounds * clients * 2 * numbers * config.paper_number_bytes

    @property
    def drifts(self) -> bool:
        """Tell whether nodes that differ may stay different; in int8 only changes are merged."""
        return super().drifts or bool(self.config.wire_dtype == "int8")

    def used(self, state: MethodState) -> Tensors:
        """Return the shared tensors and, once trained, the node's private ones (FedOTP, FedPGP)."""
        own = {
            name.removeprefix(PRIVATE): array
            for name, array in state.carry.items()
            if name.startswith(PRIVATE)
        }
        return Tensors({**state.shared, **own}) if own else state.shared

    def using(self, state: MethodState, used: Tensors) -> MethodState:
        """Return a state with the shared and the private tensors among `used`."""
        shared = {name: array for name, array in used.items() if name in state.shared}
        own = {PRIVATE + name: array for name, array in used.items() if name not in state.shared}
        return replace(state, shared=Tensors(shared), carry=Tensors({**state.carry, **own}))

    def contribution(self, now: Round, report: Report) -> Sent:
        """Return the tuned tensors; in int8 their change plus the last change's rounding error."""
        if self.config.wire_dtype != "int8":
            return super().contribution(now, report)
        before, owed = now.draft.shared, now.draft.arrays
        change = Tensors(
            {
                name: array - before[name] + owed.get(OWN + name, 0.0)
                for name, array in report.tensors.items()
            }
        )
        told = roundtrip(change, "int8")
        rest = {name: array for name, array in owed.items() if not name.startswith(OWN)}
        left = Tensors(rest | {OWN + name: array - told[name] for name, array in change.items()})
        return Sent(change, replace(now.draft, arrays=left))

    def received(self, now: Round, given: Sequence[Contribution]) -> tuple[Contribution, ...]:
        """Return the contributions; in int8 each change is added to the prompts of before."""
        if self.config.wire_dtype != "int8":
            return super().received(now, given)
        before = now.draft.shared
        return tuple(replace(one, tensors=_added(before, one.tensors)) for one in given)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Return the (weighted) mean of all contributions, or their robust merge."""
        equal = self.config.weights == "equal"
        filled = [contribution for contribution in given if contribution.tensors]
        said = [contribution.samples for contribution in filled]
        weights = [1.0] * len(filled) if equal else weights_of(said)
        tensors, before = [contribution.tensors for contribution in filled], now.draft.shared
        carry = now.draft.carry
        if self.config.optimizer == "reset":
            carry = Tensors({key: array for key, array in carry.items() if key.startswith(PRIVATE)})
        agrees = now.base_agrees
        shared = combine(self.config.merge, tensors, weights, before, base_agrees=agrees)
        return replace(now.draft, shared=shared, carry=carry)


def _added(before: Tensors, change: Tensors) -> Tensors:
    return Tensors({name: before[name] + array for name, array in change.items()})
