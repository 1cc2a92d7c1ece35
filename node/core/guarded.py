"""What a node uses after a mesh-wide round: what all merged, or what it tuned itself.

A merge that all agree on may still make one node worse: its images differ from the others', or some
of them lie. With guard.merged_rise set a node keeps a line of its own: prompts tuned on its images
from what it used before, with no word of anyone else. After each merge it measures, and where

    l(merged) > l(own) + merged_rise        l: cross-entropy on its validation images

it uses (measures, predicts and exports with) its own. What is exchanged is the same, and the next
round begins for it too where everyone's does. While it uses the merged prompts its own line is
what it told the others; only after a round in which it did not, a round costs a second tuning.
Personal models beside a common one, against those who lie, are Ditto's (Li et al., ICML 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from node.core.behind import Behind
from node.core.events import Effect, Record, Tune
from node.core.policy import Context
from node.core.types import EMPTY, MEASURE, Job, PolicyState, Report, Tensors


@dataclass(slots=True)
class Choice:
    """The merged prompts against a node's own; losses: on its validation images, in that order."""

    merged: Tensors
    own: Tensors
    losses: list[float] = field(default_factory=list)

    def candidate(self) -> Tensors | None:
        """Return what to measure next; None at the end, or if the node cannot measure a loss."""
        if not self.losses:
            return self.merged
        return self.own if len(self.losses) == 1 and math.isfinite(self.losses[0]) else None

    def note(self, metrics: Mapping[str, float]) -> None:
        """Take what was measured."""
        self.losses.append(metrics.get("validation_loss", float("nan")))


class Guarded(Behind):
    """The end of a round of `Staged` (node/core/rounds.py); see the file's header."""

    def __init__(self, config: Any, context: Context, state: PolicyState) -> None:
        super().__init__(config, context, state)
        self._told_own = EMPTY  # what this node tuned for the others, as it would use it by itself
        self._own_job: Job | None = None  # the tuning of its own line, where it left theirs
        self._choice: Choice | None = None  # of its own prompts against the merged ones

    def _begin_choice(self) -> None:
        """Forget the round before."""
        self._told_own, self._used, self._own_job, self._choice = EMPTY, EMPTY, None, None

    @property
    def _apart(self) -> bool:
        """Tell whether what the node uses is not what all merged last."""
        return bool(self._tuned) and self._tuned != self.held.shared

    def _kept(self, taken: Tensors) -> Tensors:
        """Return what to use after taking over a state that others merged, unmeasured."""
        guarded = self.context.guard.merged_rise is not None
        return self._tuned if guarded and self._apart else taken

    def _tuned_for_all(self, report: Report) -> None:
        """Take what the first stage's job returned."""
        if self.context.guard.merged_rise is not None:
            self._told_own = Tensors({**self.draft.shared, **report.tensors})

    def _measure(self) -> list[Effect]:
        """Choose what to use, where there is something to choose from, and measure it."""
        guarded = self.context.guard.merged_rise is not None
        drawn = bool(self._told_own)
        if not guarded or not (drawn or self._apart):
            return self._use(self.draft.shared)
        if not (drawn and self._apart):
            return self._compare(self._told_own or self._tuned)
        merged, self.draft = self.draft, replace(self.held, shared=self._tuned, carry=EMPTY)
        self._own_job, self.draft = self.job(self.stages[0]), merged
        assert self._own_job is not None, "it was drawn to tune"
        self._job, self._phase = self._own_job, "tuning"
        return [Tune(self._own_job)]

    def _compare(self, own: Tensors) -> list[Effect]:
        self._choice = Choice(self.draft.shared, own)
        return self._next_look(self._choice)

    def _chosen(self, job: Job, report: Report) -> list[Effect] | None:
        """Take a report that belongs to the choice; None for any other."""
        if job == self._own_job:
            self._own_job = None
            return self._compare(Tensors({**self._tuned, **report.tensors}))
        if self._choice is None or job.measure:
            return None
        self._choice.note(report.metrics)
        return self._next_look(self._choice)

    def _next_look(self, choice: Choice) -> list[Effect]:
        tried, rise = choice.candidate(), self.context.guard.merged_rise
        if tried is not None:
            return self._look(tried, measure=False)
        merged, *own = choice.losses  # of a node that cannot measure there is no second
        if rise is None or not own or not merged > own[0] + rise:
            return self._use(self.draft.shared)
        text = (
            f"round {self.current}: the own prompts are used: the merged ones' validation loss is "
            f"{merged:.3g}, theirs {own[0]:.3g} (guard.merged_rise: {rise:g})"
        )
        return [Record("merge.unused", text), *self._use(choice.own)]

    def _use(self, tensors: Tensors) -> list[Effect]:
        self._used = tensors
        return self._look(tensors, measure=True)

    def _look(self, tensors: Tensors, measure: bool) -> list[Effect]:
        job = replace(self.training(MEASURE, tensors), measure=measure, carry=EMPTY)
        self._job, self._phase = job, "tuning"
        return [Tune(job)]
