"""Decide where a node goes on, once half of the members confirmed a state or a later round. Pure.

| the destination is                            | the node                           | decision |
|-----------------------------------------------|------------------------------------|----------|
| none                                          | any                                | Stay     |
| after this round or a later one               | any                                | Finish   |
| after the round before, with a state          | drifts, waits for the first stage  | Merge    |
|                                               | drifts, has not contributed yet    | Restart  |
|                                               | drifts, has contributed            | Stay     |
|                                               | does not drift                     | Stay     |
| after the round before, without a state       | any                                | Stay     |
| older                                         | any                                | Stay     |

The engine asks when a round begins, when a job has ended, and while the round waits for peers. In
between, a job or a commit is under way and ends first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fednode.core.rounds.transfer import Destination
from fednode.core.types import Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a node is in its rounds.

    number: the round under way. last: the last round that a catch-up may move the node to. drifts:
    whether prompts that differ stay different (`Method.drifts`). told: whether the node has sent a
    contribution in this round. waits: whether it waits for the contributions to the first stage.
    """

    number: int
    last: int
    drifts: bool
    told: bool
    waits: bool


@dataclass(frozen=True, slots=True)
class Stay:
    """The round under way goes on as it is."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The round goes on, and its contributions are merged into this state, packed."""

    state: Tensors


@dataclass(frozen=True, slots=True)
class Restart:
    """The round begins again, from this state, packed."""

    state: Tensors


@dataclass(frozen=True, slots=True)
class Finish:
    """The node adopts a round at once: with this state, or, if it is None, with its own prompts."""

    number: int
    state: Tensors | None
    giver: str = field(default="", compare=False)


Decision = Stay | Merge | Restart | Finish


def decide(at: Standing, to: Destination | None) -> Decision:
    """Return how a node goes on; to: where half of the members say that it should go."""
    if to is None:
        return Stay()
    if to.number >= at.number:
        return Finish(min(to.number, at.last), to.tensors, to.giver)
    if to.tensors is None or to.number < at.number - 1 or not at.drifts:
        return Stay()
    if at.waits:
        return Merge(to.tensors)
    return Stay() if at.told else Restart(to.tensors)
