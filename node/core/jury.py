"""A mesh judges each contribution by what it does to the loss, before any is merged (rule "vote").

A robust merge compares contributions with each other and cannot tell which of two lies. Here each
contribution is first clipped to the median length of all, so that none can do more than an honest
one, whatever it holds. Then every node v measures the validation loss l_v with each clipped
contribution i merged alone, tells everyone

    d_v,i = l_v(i alone) - l_v(none)

and i is merged by all, in the plain mean, where

    s_i = median_v d_v,i <= max(0, median_j s_j) + rise

that is unless it harms most nodes: by more than doing without it would, and by more than the middle
contribution does. While fewer than half of the voters lie, each s_i lies between differences that
honest nodes measured. Scoring by the loss on images of one's own is Zeno's idea (Xie et al., ICML
2019), at whose server one set of images decides; the vote is ours. It costs one small message more
a stage, and of each node a measurement for each contribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from node.core.method import Contribution
from node.core.robust import reach
from node.core.types import Array, Tensors

VOTES: Final = "votes."
"""Prefix of the phase in which a stage's votes travel."""
LOSS_MAX: Final = 20.0
"""Of a vote, in nats either way: e^-20 is the chance of a right answer that nobody would call one,
and the votes of 2,500 nodes stay under the norm that limits.norm_ratio takes."""


def steps(stages: Sequence[str]) -> tuple[str, ...]:
    """Return stages, each with its votes after it."""
    return tuple(step for stage in stages for step in (stage, VOTES + stage))


def misvote(found: Mapping[str, tuple[int, ...]]) -> str:
    """Say what is wrong with the shapes of a ballot; "" for nothing."""
    wrong = sorted(name for name, shape in found.items() if shape != (1,))
    return f"the vote on {wrong[0]!r} is {list(found[wrong[0]])}; it is one number" if wrong else ""


def shortened(
    candidates: Sequence[Contribution], origin: Mapping[str, Array] | None, radius: float
) -> list[Contribution]:
    """Return contributions no further from origin than radius, or than the median where it is 0.

    A length is over all arrays that a contribution holds; the median is the lower one. No origin
    is for nodes that began apart: they measure from the middle of what was contributed, which is
    the same for all who hear the same, and so agree again.
    """
    if origin is None:
        origin = _middle(candidates)
    changes = [
        {name: one.astype(np.float64) - origin[name] for name, one in candidate.tensors.items()}
        for candidate in candidates
    ]
    lengths = [np.sqrt(sum(np.square(x).sum() for x in change.values())) for change in changes]
    limit = reach(lengths, radius) if lengths else 0.0
    found: list[Contribution] = []
    for candidate, change, length in zip(candidates, changes, lengths, strict=True):
        if length > limit:
            nearer = {name: origin[name] + x * (limit / length) for name, x in change.items()}
            candidate = replace(candidate, tensors=Tensors(nearer))
        found.append(candidate)
    return found


def _middle(candidates: Sequence[Contribution]) -> dict[str, Array]:
    """Return the coordinate-wise median of each array, over those that hold it."""
    names = sorted({name for one in candidates for name in one.tensors})
    return {
        name: np.median([x.tensors[name] for x in candidates if name in x.tensors], axis=0)
        for name in names
    }


@dataclass(slots=True)
class Trial:
    """One node measuring contributions. alone: what would be used if one, or none, were merged."""

    candidates: Sequence[Contribution]
    alone: Callable[[Sequence[Contribution]], Tensors]
    losses: list[float] = field(default_factory=list)

    def candidate(self) -> Tensors | None:
        """Return what to measure next: without any contribution, then with each; None at the end.

        Of a node that cannot measure (it keeps no validation images) nothing is asked twice.
        """
        at = len(self.losses)
        if at > len(self.candidates) or (at and not np.isfinite(self.losses[0])):
            return None
        return self.alone(self.candidates[at - 1 : at] if at else ())

    def note(self, metrics: Mapping[str, float]) -> None:
        """Take what was measured."""
        self.losses.append(metrics.get("validation_loss", float("nan")))

    def votes(self) -> Tensors:
        """Return {sender: [d]} of all candidates; empty for a node that cannot measure."""
        if not self.losses or not np.isfinite(self.losses[0]):
            return Tensors()
        changes = np.asarray(self.losses[1:], dtype=np.float64) - self.losses[0]
        bounded = np.nan_to_num(changes, nan=LOSS_MAX).clip(-LOSS_MAX, LOSS_MAX)
        names = [one.sender for one in self.candidates]
        return Tensors({name: [one] for name, one in zip(names, bounded, strict=True)})


def admitted(
    candidates: Sequence[Contribution], ballots: Sequence[Tensors], rise: float
) -> list[Contribution]:
    """Return the contributions to merge, in their order; none where nobody voted on any.

    A single one is the middle one, and needs no vote.
    """
    if len(candidates) == 1:
        return list(candidates)
    scores: dict[str, float] = {}
    for one in candidates:
        votes = [float(ballot[one.sender][0]) for ballot in ballots if one.sender in ballot]
        if votes:
            scores[one.sender] = float(np.median(votes))
    if not scores:
        return []
    most = max(0.0, float(np.median(list(scores.values())))) + rise
    return [one for one in candidates if scores.get(one.sender, np.inf) <= most]
