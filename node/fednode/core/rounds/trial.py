"""Changes of a node's arrays by received arrays, tried on the node's validation images.

A gossip method's `mix` returns changes. With policy.admit_rise the engine (gossip.py) applies them
one after the other, measures each, and drops those that raise the validation loss too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fednode.core.types import Tensors


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a sender's arrays make to the node's own; tried by itself, see admit_rise."""

    sender: str
    apply: Callable[[Tensors], Tensors]


@dataclass(frozen=True, slots=True)
class ValidationTrial:
    """Changes that are tried one after the other on the node's validation images.

    Attributes:
        tensors: the node's own, with the changes accepted so far
        loss: their validation loss; None: it is measured first
        changes: still to be tried
        rise: largest rise of the loss with which a change is accepted
        metrics: of the round's training; empty if the training comes after the trial
    """

    tensors: Tensors
    loss: float | None
    changes: tuple[Change, ...]
    rise: float
    metrics: Mapping[str, float]
    senders: frozenset[str] = frozenset()
    refused: int = 0

    def candidate(self) -> Tensors:
        """Return the tensors to measure next."""
        return self.tensors if self.loss is None else self.changes[0].apply(self.tensors)

    def judged(self, metrics: Mapping[str, float]) -> ValidationTrial:
        """Return the trial after a measurement of the candidate: it is accepted, or it is not."""
        loss = metrics.get("validation_loss", float("inf"))
        if self.loss is None:
            return replace(self, loss=loss)
        change, rest = self.changes[0], self.changes[1:]
        if loss <= self.loss + self.rise:  # false if the loss is NaN
            senders = self.senders | {change.sender}
            return replace(self, tensors=self.candidate(), loss=loss, changes=rest, senders=senders)
        return replace(self, changes=rest, refused=self.refused + 1)
