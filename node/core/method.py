"""What a method decides in mesh-wide rounds, jobs and merges; node/core/rounds.py runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from node.core.policy import Context
from node.core.settings import Barrier, RoundSettings
from node.core.types import EMPTY, Array, Dtype, Job, Json, Report, Tensors

OWN: Final = "own/"
SHARED: Final = "shared/"
ARRAYS: Final = "arrays/"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one node gave to a stage, as everyone sees it; samples are its own word."""

    sender: str
    tensors: Tensors
    samples: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a node has between rounds.

    shared: what is tuned and measured. carry: the learner's. arrays: what merging needs beside it;
    all nodes have these alike too, but for names that begin with OWN, which are this node's alone.
    """

    shared: Tensors
    carry: Tensors = EMPTY
    arrays: Tensors = EMPTY

    def packed(self) -> Tensors:
        """Return what all nodes have alike, in one set of arrays."""
        shared = {SHARED + name: one for name, one in self.shared.items()}
        arrays = {
            ARRAYS + name: one for name, one in self.arrays.items() if not name.startswith(OWN)
        }
        return Tensors({**shared, **arrays})

    def taking(self, packed: Tensors) -> Self:
        """Return this with what another node packed."""
        own = {name: one for name, one in self.arrays.items() if name.startswith(OWN)}
        arrays = Tensors({**_under(ARRAYS, packed), **own})
        return replace(self, shared=_under(SHARED, packed), arrays=arrays)


def _under(prefix: str, tensors: Tensors) -> Tensors:
    found: dict[str, Array] = {
        name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)
    }
    return Tensors(found)


class Method(ABC):
    """The hooks of a method; what they are given and return is of the round under way.

    held: what the last round left. draft: becomes `held` when this one, number `current`, is over.
    moored: most of those heard began this round from what this node began from.
    """

    name: ClassVar[str] = ""
    config_type: ClassVar[type[Any]]
    default_mode: ClassVar[Barrier] = "sync"
    modes: ClassVar[tuple[Barrier, ...]] = ("sync", "quorum")
    tuning: ClassVar[Mapping[str, Json]] = {}
    stages: ClassVar[tuple[str, ...]] = ("prompts",)

    def __init__(self, config: Any, context: Context, held: Held) -> None:
        self.config = config
        self.context = context
        self.held = held
        self.draft = held
        self.current = 0
        self.moored = True

    @classmethod
    def unfit(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Say which settings do not go together; a method adds its own."""
        mode = rounds.mode or cls.default_mode
        if mode not in cls.modes:
            return f"rounds.mode is {mode!r}; policy {cls.name} works with {', '.join(cls.modes)}."
        return ""

    def job(self, stage: str) -> Job | None:
        """Return what to train in a stage; None for a node that only listens."""
        return self.training(stage, self.draft.shared)

    def contribution(self, stage: str, report: Report | None) -> Tensors:
        """Return what to tell the others of a stage's outcome; no report where none was trained."""
        return EMPTY if report is None else report.tensors

    @abstractmethod
    def merge(self, stage: str, heard: Sequence[Contribution]) -> Held:
        """Return the draft after a stage, from everyone's contributions, the own one among them."""

    def shapes(self, stage: str) -> Mapping[str, tuple[int, ...]]:
        """Return what a contribution may hold; `complete` says whether it must hold it all."""
        return self.held.shared.shapes

    def complete(self, stage: str, names: frozenset[str]) -> bool:
        """Tell whether a contribution may hold these arrays alone; an empty one always may."""
        return names == frozenset(self.shapes(stage))

    @property
    def drifts(self) -> bool:
        """Tell whether nodes that came to differ may stay so: a robust merge looks at the last."""
        return not self.trusting

    @property
    def trusting(self) -> bool:
        """Tell whether one liar may move a merge anywhere: nothing is lost by believing one."""
        merge = getattr(self.config, "merge", None)
        return merge is None or merge.rule == "mean"

    def misfit(self, stage: str, found: Mapping[str, tuple[int, ...]]) -> str:
        """Say what is wrong with the shapes of a contribution; "" for nothing."""
        shapes = self.shapes(stage)
        for name, shape in found.items():
            if shapes.get(name) != shape:
                wanted = list(shapes[name]) if name in shapes else "nothing of that name"
                return f"{name} is {list(shape)} in phase {stage!r}; here it is {wanted}"
        if found and not self.complete(stage, frozenset(found)):
            return f"phase {stage!r} carries {', '.join(found)} alone; it takes {', '.join(shapes)}"
        return ""

    def dtype(self, stage: str) -> Dtype:
        """Return how a stage's arrays travel."""
        found: Dtype = self.config.wire_dtype
        return found

    def training(self, stage: str, tensors: Tensors, reference: Tensors = EMPTY) -> Job:
        """Return a job of this round that trains tensors; what is merged is measured later."""
        seed = self.context.draw_seed(self.current, stage)
        rounds, domain = self.context.rounds.max, self.context.domain
        carry = self.draft.carry
        return Job(self.current, stage, tensors, seed, carry, reference, rounds, domain, False)
