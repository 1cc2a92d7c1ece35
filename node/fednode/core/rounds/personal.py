"""Personal prompts: after a mesh-wide round a node may use its own prompts, not the merged ones.

A merge that all nodes agree on may still make one node worse: its images differ from the others',
or some nodes are dishonest. If guard.merged_rise is set, a node keeps personal prompts, too. They
are tuned on its own images from the prompts that it used before, without anything from other nodes.
After each merge the node measures both. If

    l(merged) > l(own) + merged_rise        l: cross-entropy on its validation images

the node uses (measures, predicts and exports with) its personal prompts. It sends its contribution
and starts the next round from the merged prompts, like every node; only what it predicts with
differs. If it used the merged prompts last round, its personal prompts are what it tuned for its
contribution, at no cost. Otherwise they are trained separately, which costs one extra tuning.
Source of personal models beside a common model, against dishonest nodes: Ditto (Li et al., ICML
2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fednode.core.rounds.method import MethodHooks, MethodState, Round
from fednode.core.rounds.progress import Comparing, Measuring, TrainingOwn
from fednode.core.types import EMPTY, MEASURE, Job, Report, Tensors

Work = TrainingOwn | Comparing | Measuring


@dataclass(frozen=True, slots=True)
class Personal:
    """The choice of one node between merged and personal prompts. rise: guard.merged_rise.

    used: the prompts that the node used after the last round, EMPTY if it had none. tuned: what it
    tuned for its contribution to this round, EMPTY if it tuned nothing.
    """

    method: MethodHooks
    rise: float | None

    def kept(self, now: Round, used: Tensors, taken: MethodState) -> Tensors:
        """Return the prompts to use after a catch-up: the personal prompts, or those of `taken`."""
        return used if self._apart(now, used) else self.method.used(taken)

    def _apart(self, now: Round, used: Tensors) -> bool:
        """Tell whether a node uses other prompts than those that were merged last."""
        return self.rise is not None and bool(used) and used != self.method.used(now.held)

    def after_merge(self, now: Round, used: Tensors, tuned: Tensors) -> Work:
        """Return the next job: to measure the draft, or to compare it with personal prompts."""
        apart = self._apart(now, used)
        if self.rise is None or not (tuned or apart):
            return self._measure(now, self.method.used(now.draft))
        if not (tuned and apart):
            return self._compare(now, tuned or used)
        first = self.method.stages[0]
        job = self.method.job(replace(now, stage=first, draft=self._own(now, used), heard={}))
        return TrainingOwn(job)

    def after_job(
        self, now: Round, ended: TrainingOwn | Comparing, used: Tensors, report: Report
    ) -> tuple[Work, str]:
        """Return the next job, and why the personal prompts are used ("" if they are not)."""
        if isinstance(ended, TrainingOwn):
            return self._compare(now, self._tuned(self._own(now, used), report)), ""
        loss = report.metrics.get("validation_loss", math.nan)
        losses = (*ended.losses, loss)
        if len(losses) == 1 and math.isfinite(loss):
            trial = self._trial(now, ended.own)
            return replace(ended, job=trial, losses=losses), ""
        why = self._refusal(losses)
        return self._measure(now, ended.own if why else ended.merged), why

    def candidate(self, now: Round, report: Report) -> Tensors:
        """Return what may serve as personal prompts after a stage's job; EMPTY if nothing may."""
        first = now.stage == self.method.stages[0]
        return self._tuned(now.draft, report) if self.rise is not None and first else EMPTY

    def _tuned(self, start: MethodState, report: Report) -> Tensors:
        """Return what a node would use if nobody had contributed but itself."""
        state, alone = replace(start, carry=report.carry), {**start.shared, **report.tensors}
        return self.method.used(self.method.using(state, Tensors(alone)))

    def _own(self, now: Round, used: Tensors) -> MethodState:
        """Return the state that the own prompts are trained from."""
        return self.method.using(replace(now.held, carry=EMPTY), used)

    def _refusal(self, losses: tuple[float, ...]) -> str:
        """Return why the merged prompts are not used; "" if they are.

        A node that cannot measure has no second loss, and uses the merged prompts.
        """
        merged, *own = losses
        if self.rise is None or not own or not merged > own[0] + self.rise:
            return ""
        return (
            f"the own prompts are used: the merged ones' validation loss is {merged:.3g}, "
            f"theirs {own[0]:.3g} (guard.merged_rise: {self.rise:g})"
        )

    def _compare(self, now: Round, own: Tensors) -> Comparing:
        merged = self.method.used(now.draft)
        return Comparing(self._trial(now, merged), merged, own)

    def _trial(self, now: Round, tensors: Tensors) -> Job:
        """Return a job that looks at the validation images only."""
        job = self.method.training(replace(now, stage=MEASURE), tensors)
        return replace(job, carry=EMPTY)

    def _measure(self, now: Round, tensors: Tensors) -> Measuring:
        return Measuring(replace(self._trial(now, tensors), measure=True))
