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
from collections.abc import Generator
from dataclasses import dataclass, replace

from fednode.core.rounds.method import MethodHooks, MethodState, Round
from fednode.core.types import EMPTY, MEASURE, Job, Report, Tensors

Choice = Generator[Job, Report, tuple[Tensors, str]]
"""The choice under way: it yields jobs, takes their reports, and returns what `choose` says."""


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

    def choose(self, now: Round, used: Tensors, tuned: Tensors) -> Choice:
        """Return the prompts to use after the last merge, and why: "" if they are the merged ones.

        A node that cannot measure uses the merged prompts.
        """
        merged, own = self.method.used(now.draft), tuned or used
        apart = self._apart(now, used)
        if self.rise is None or not (tuned or apart):
            return merged, ""
        if tuned and apart:
            start = self.method.using(replace(now.held, carry=EMPTY), used)
            first = replace(now, stage=self.method.stages[0], draft=start, heard={})
            own = self._tuned(start, (yield self.method.job(first)))
        losses = list[float]()
        for prompts in (merged, own):
            report = yield self.trial(now, prompts)
            losses.append(report.metrics.get("validation_loss", math.nan))
            if not math.isfinite(losses[0]):
                return merged, ""
        if not losses[0] > losses[1] + self.rise:
            return merged, ""
        why = (
            f"the own prompts are used: the merged ones' validation loss is {losses[0]:.3g}, "
            f"theirs {losses[1]:.3g} (guard.merged_rise: {self.rise:g})"
        )
        return own, why

    def trial(self, now: Round, tensors: Tensors) -> Job:
        """Return a job that looks at the validation images only."""
        job = self.method.training(replace(now, stage=MEASURE), tensors)
        return replace(job, carry=EMPTY)

    def candidate(self, now: Round, report: Report) -> Tensors:
        """Return what may serve as personal prompts after a stage's job; EMPTY if nothing may."""
        first = now.stage == self.method.stages[0]
        return self._tuned(now.draft, report) if self.rise is not None and first else EMPTY

    def _tuned(self, start: MethodState, report: Report) -> Tensors:
        """Return what a node would use if nobody had contributed but itself."""
        state, alone = replace(start, carry=report.carry), {**start.shared, **report.tensors}
        return self.method.used(self.method.using(state, Tensors(alone)))
