"""TRIP (Gong et al., IEEE TIP): prompts that are averaged every round, and their moving average.

All nodes tune the mean of the last round, and predict with the beta moving average of all means,
which begins at the initial prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from fednode.core.merge.mean import mean
from fednode.core.merge.momentum import alpha
from fednode.core.rounds.averaging import Averaging
from fednode.core.rounds.method import Contribution, MethodState, Round, Sent
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Json, Report, Tensors
from fednode.policies.trip.config import TRIPConfig

RAW: Final = "raw/"
"""Prefix of the merged prompts, which nodes tune; the shared prompts are their moving averages."""
SUM: Final = "sum"
"""The sum of the averages' weights so far; rounds without a contribution do not count."""


class TRIP(Averaging):
    """Federated averaging with a moving average; see the file's header."""

    name: ClassVar[str] = "trip"
    config_type: ClassVar[type[TRIPConfig]] = TRIPConfig
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 32,
        "optimizer": "adamw",
        "lr": 5e-4,
        "decay": 0.8,
        "betas": [0.9, 0.98],
        "eps": 1e-7,
        "weight_decay": 0.01,
        "batch_size": 16,
        "schedule": "constant",
    }

    @classmethod
    def settings_fault(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Refuse a moving average over a run without an end."""
        if config.average and not rounds.max:
            return "rounds.max is 0; TRIP's moving average needs to know how many there are."
        return ""

    def first(self, initial: Tensors) -> MethodState:
        """Return the state before round 1: the moving averages equal the prompts."""
        if not self.config.average:
            return MethodState(initial)
        weight = alpha(0, max(1, self.context.rounds.max), self.config.beta)
        return self._state(MethodState(initial), initial, initial, weight)

    def using(self, state: MethodState, used: Tensors) -> MethodState:
        """Return a state whose prompts and moving averages are those used."""
        if not self.config.average:
            return super().using(state, used)
        return self._state(state, used, used, float(state.arrays[SUM][0]))

    @property
    def drifts(self) -> bool:
        """Tell whether nodes that differ may stay different: moving averages do."""
        return bool(self.config.average) or super().drifts

    def job(self, now: Round) -> Job:
        """Train the mean of the last round."""
        return super().job(self._plain(now))

    def contribution(self, now: Round, report: Report) -> Sent:
        """Return the tuned prompts, or what tuning changed of the mean."""
        sent = super().contribution(self._plain(now), report)
        return replace(sent, draft=replace(sent.draft, shared=now.draft.shared))

    def received(self, now: Round, given: Sequence[Contribution]) -> tuple[Contribution, ...]:
        """Return the contributions as prompts: changes are changes of the last round's mean."""
        return super().received(self._plain(now), given)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Return the mean of the contributions, and the moving averages with it."""
        merged = super().merge(self._plain(now), given)
        if not self.config.average:
            return merged
        if not any(contribution.tensors for contribution in given):
            return replace(merged, shared=now.draft.shared)
        weight = alpha(now.number, max(1, self.context.rounds.max), self.config.beta)
        before = max(0.0, float(merged.arrays[SUM][0]))  # a state taken over may hold any number
        averages = {
            name: mean([now.draft.shared[name], array], [before, weight])
            for name, array in merged.shared.items()
        }
        return self._state(merged, Tensors(averages), merged.shared, before + weight)

    def _plain(self, now: Round) -> Round:
        """Return a round whose draft shares the mean of the last round, not its average."""
        if not self.config.average:
            return now
        raw = {name: now.draft.arrays[RAW + name] for name in now.draft.shared}
        return replace(now, draft=replace(now.draft, shared=Tensors(raw)))

    def _state(
        self, state: MethodState, averages: Tensors, raw: Tensors, weights: float
    ) -> MethodState:
        held = {RAW + name: array for name, array in raw.items()}
        arrays = Tensors({**state.arrays, **held, SUM: np.array([weights])})
        return replace(state, shared=averages, arrays=arrays)
