"""A method's decisions in mesh-wide rounds: jobs, contributions and merges, by value.

node/fednode/core/rounds/engine.py runs the rounds. It gives each hook a `Round` and takes what the
hook returns. A method has no state of its own, so a test can call a hook without any round under
way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from fednode.core.policy import PolicyMethod
from fednode.core.settings import STRICT, MergeSettings, bounded
from fednode.core.types import (
    ARRAYS,
    EMPTY,
    OWN,
    SHARED,
    Array,
    Dtype,
    Job,
    PolicyState,
    Report,
    Tensors,
    packed,
)


@dataclass(frozen=True, slots=True)
class MeshWideSettings:
    """Settings of every policy of mesh-wide rounds; a policy may set other defaults.

    ZeroDFL, which has no mesh-wide rounds, declares its own `wire_dtype` and `optimizer`; the texts
    below explain them, too (tools/settings).
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    participants: int = 0
    """Number H of nodes that tune and contribute in a round. All nodes draw the same H nodes by
    the seed, the round and the members' names, without a message. The other nodes merge what the
    drawn nodes send. 0: all nodes."""
    wire_dtype: Dtype = "float32"
    """Number format of prompts in messages. float16 halves the bytes of float32. int8 (policies
    that average prompts as a whole) sends changes with error feedback, in a quarter of the
    bytes."""
    merge: MergeSettings = field(default_factory=MergeSettings)

    def __post_init__(self) -> None:
        bounded("policy.participants", self.participants, 0)


@dataclass(frozen=True, slots=True)
class MomentSettings(MeshWideSettings):
    """Settings of policies whose merge replaces prompts that have moments of an optimizer."""

    optimizer: Literal["keep", "reset"] = "reset"
    """When other nodes' prompts replace the node's, keep the optimizer's momentum or moments of
    these prompts, or reset them. DiPrompT's Q is not replaced, so its moments are always kept."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One node's contribution to a stage, as all nodes see it. samples: the node's own claim."""

    sender: str
    tensors: Tensors
    samples: int


@dataclass(frozen=True, slots=True)
class MethodState:
    """The state of a method between rounds.

    shared: the tensors that are tuned, merged and measured. carry: what the learner carries on.
    arrays: further arrays that merging needs. All nodes hold the same arrays, except those whose
    names begin with OWN: these belong to this node alone.
    """

    shared: Tensors
    carry: Tensors = EMPTY
    arrays: Tensors = EMPTY

    def packed(self) -> Tensors:
        """Return what all nodes hold alike, in one set of arrays."""
        return packed(self.shared, self.arrays)

    @property
    def digest(self) -> str:
        return self.packed().digest

    def taking(self, packed: Tensors) -> Self:
        """Return this state with the shared arrays replaced by those that another node packed."""
        own = {name: array for name, array in self.arrays.items() if name.startswith(OWN)}
        arrays = Tensors({**_under(ARRAYS, packed), **own})
        return replace(self, shared=_under(SHARED, packed), arrays=arrays)


def _under(prefix: str, tensors: Tensors) -> Tensors:
    arrays: dict[str, Array] = {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
    return Tensors(arrays, tensors.classes)


@dataclass(frozen=True, slots=True)
class Round:
    """The round under way, as a method's hooks see it.

    number: from 1 on. stage: the stage under way. held: the state that the last round left. draft:
    the state that becomes `held` when this round ends. base_agrees: whether more than half of the
    contributors began this round from the prompts that this node began from. heard: the
    contributions that this round's earlier stages merged, by stage, sorted by sender. members: all
    members that the node knows, live or not, itself among them; empty if the host does not say.
    """

    number: int
    stage: str
    held: MethodState
    draft: MethodState
    base_agrees: bool = True
    heard: Mapping[str, tuple[Contribution, ...]] = field(default_factory=dict)
    members: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sent:
    """The arrays that a node sends to its peers after a stage, and the draft from then on."""

    tensors: Tensors
    draft: MethodState


class MethodHooks(PolicyMethod):
    """A method of mesh-wide rounds: pure hooks, which depend on settings and arguments alone.

    stages: the exchanges of one round, in order. personal: whether guard.merged_rise can keep
    personal prompts beside the merged ones.
    """

    shared_state: ClassVar[bool] = True
    personal: ClassVar[bool] = True
    stages: tuple[str, ...] = ("prompts",)

    def first_state(self, initial: Tensors) -> PolicyState:
        first = self.first(initial)
        return PolicyState(0, first.shared, EMPTY, first.carry, arrays=first.arrays)

    def first(self, initial: Tensors) -> MethodState:
        """Return the state before round 1."""
        return MethodState(initial)

    def used(self, state: MethodState) -> Tensors:
        """Return what a node measures, predicts and exports with in a state: the shared tensors.

        A method whose nodes hold prompts of their own adds them; `using` undoes that.
        """
        return state.shared

    def using(self, state: MethodState, used: Tensors) -> MethodState:
        """Return a state in which the node uses given tensors, which `used` returned before."""
        return replace(state, shared=used)

    def job(self, now: Round) -> Job:
        """Return the job that trains in a stage; the engine asks only nodes that take part."""
        return self.training(now, now.draft.shared)

    def contribution(self, now: Round, report: Report) -> Sent:
        """Return what to send to the peers after a stage's job."""
        return Sent(report.tensors, now.draft)

    def received(self, now: Round, given: Sequence[Contribution]) -> tuple[Contribution, ...]:
        """Return contributions as `merge` gets them: prompts, also where changes were sent."""
        return tuple(given)

    @abstractmethod
    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Return the draft after a stage. given: all contributions, this node's own among them."""

    def note(self, before: MethodState, after: MethodState) -> str:
        """Return what the operator should know of a merge; "" for nothing."""
        return ""

    def shapes(self, stage: str, held: MethodState) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the arrays that a contribution may hold.

        `complete` tells whether a contribution must hold all of them.
        """
        return held.shared.shapes

    def complete(self, names: frozenset[str], expected: frozenset[str]) -> bool:
        """Tell whether a contribution may hold exactly these arrays (or be empty, as always).

        expected: the names of all arrays that a contribution to this stage may hold.
        """
        return names == expected

    @property
    def drifts(self) -> bool:
        """Tell whether nodes whose prompts came to differ may stay different.

        Under robust rules they may, because such a merge depends on the prompts of the last round.
        """
        return not self.trusting

    @property
    def trusting(self) -> bool:
        """Tell whether one dishonest node can move a merge anywhere, as under the rule "mean".

        Under such a rule a catch-up may believe a single node, too, without further risk.
        """
        merge = getattr(self.config, "merge", None)
        return merge is None or merge.rule == "mean"

    def fault(self, stage: str, held: MethodState, tensors: Tensors) -> str:
        """Return what is wrong with the arrays of a contribution; "" if they fit."""
        if tensors.classes:
            return f"phase {stage!r} names classes, and this policy's arrays have none"
        return self.shape_fault(stage, held, tensors.shapes)

    def state_fault(self, held: MethodState, packed: Tensors) -> str:
        fits = packed.shapes == held.packed().shapes and not packed.classes
        return "" if fits else "the shared state has other arrays than this policy's"

    def shape_fault(
        self, stage: str, held: MethodState, given: Mapping[str, tuple[int, ...]]
    ) -> str:
        shapes = self.shapes(stage, held)
        for name, shape in given.items():
            if shapes.get(name) != shape:
                wanted = list(shapes[name]) if name in shapes else "nothing of that name"
                return f"{name} is {list(shape)} in phase {stage!r}; here it is {wanted}"
        if given and not self.complete(frozenset(given), frozenset(shapes)):
            return f"phase {stage!r} carries {', '.join(given)} alone; it takes {', '.join(shapes)}"
        return ""

    def dtype(self, stage: str) -> Dtype:
        dtype: Dtype = self.config.wire_dtype
        return dtype

    def training(self, now: Round, tensors: Tensors, reference: Tensors = EMPTY) -> Job:
        """Return a job of this round's stage that trains tensors.

        The job does not evaluate them: the merged prompts are measured later.
        """
        return self.context.job(
            now.number, now.stage, tensors, now.draft.carry, reference=reference, measure=False
        )
