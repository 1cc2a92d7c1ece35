"""The values that all parts of fednode share. Pure: stdlib and numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

Dtype = Literal["float32", "float16", "int8"]  # number format of arrays on the wire
DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)

SPLITS: Final = ("own", "base", "new", "validation")
"""Names of accuracies: of the node's own test images, of base and new classes, of validation."""
ZERO_SHOT: Final = "zero_shot_"  # before the name of an accuracy: that of the hand-written prompt

NO_FACTS: Final[Mapping[str, str]] = MappingProxyType({})

Standing = Literal["alive", "suspect", "dead", "left", "revoked"]
"""The states of a member that nodes tell each other."""
STANDINGS: Final[tuple[Standing, ...]] = get_args(Standing)


@dataclass(frozen=True, slots=True)
class MemberUpdate:
    """News of one member of the mesh, told by itself or by another member (SWIM, section 4.2).

    incarnation: how often the member contradicted a suspicion; only the member itself raises it.
    address, id: where the member is reached and the fingerprint of its key; "" if the teller does
    not know.
    proof: its certificates, or a revocation (node/fednode/identity); hosts check it, the core
    passes it on.
    """

    name: str
    state: Standing
    incarnation: int = 0
    address: str = ""
    id: str = ""
    proof: bytes = b""


@dataclass(frozen=True, slots=True)
class Account:
    """What a node's privacy account says.

    releases: number of results of training so far. undecided: why the node is paused until its
    operator decides; "" if it is not (node/fednode/core/starts.py).
    """

    releases: int = 0
    undecided: str = ""


class Tensors(Mapping[str, Array]):
    """Immutable named float32 arrays: sorted names, read-only, compared and hashed by digest.

    Prompts have this form everywhere outside the learner. Arrays are copied in, so no caller can
    change what was stored, sent or hashed.

    classes: class names that rows of the arrays belong to; () if the arrays have no such rows.
    Which arrays have a row for each class, the policy says.
    """

    __slots__ = ("_arrays", "_digest", "_finite", "_norm", "classes")

    def __init__(
        self, arrays: Mapping[str, npt.ArrayLike] | None = None, classes: Sequence[str] = ()
    ) -> None:
        given = arrays or {}
        copies = {name: np.array(given[name], np.float32, order="C") for name in sorted(given)}
        self._begin(copies, classes)

    @classmethod
    def taking(cls, arrays: Mapping[str, Array], classes: Sequence[str] = ()) -> Self:
        """Return tensors of these very arrays, without a copy; they become read-only.

        The caller gives the arrays up: nothing may write to them, or to the memory below them. They
        must be in float32 and C order. Arrays of other Tensors may be given, too.
        """
        for name, array in arrays.items():
            if array.dtype != np.float32 or not array.flags.c_contiguous:
                raise TypeError(f"{name} is {array.dtype}; give float32 in C order")
        made = cls.__new__(cls)
        made._begin({name: arrays[name] for name in sorted(arrays)}, classes)
        return made

    def _begin(self, arrays: dict[str, Array], classes: Sequence[str]) -> None:
        for array in arrays.values():
            array.setflags(write=False)
        self._arrays, self.classes, self._digest = arrays, tuple(classes), ""
        self._finite: bool | None = None
        self._norm: float | None = None

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def digest(self) -> str:
        """Return the SHA-256 over names, shapes, little-endian bytes and classes, in hexadecimal.

        Without classes it is that of the arrays alone.
        """
        if not self._digest:
            hasher = hashlib.sha256()
            for name, array in self._arrays.items():
                hasher.update(f"{name}\0{array.shape}\0".encode())
                hasher.update(array.astype("<f4", copy=False).reshape(-1).view(np.uint8).data)
            if self.classes:
                hasher.update("\0".join(("", "classes", *self.classes)).encode())
            self._digest = hasher.hexdigest()
        return self._digest

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(array.shape) for name, array in self._arrays.items()}

    def finite(self) -> bool:
        if self._finite is None:
            self._finite = all(bool(np.isfinite(array).all()) for array in self._arrays.values())
        return self._finite

    def norm(self) -> float:
        """Return the Euclidean norm of all numbers together, accumulated in float64."""
        if self._norm is None:
            squares = (float(np.square(array, dtype=np.float64).sum()) for array in self.values())
            self._norm = float(np.sqrt(sum(squares)))
        return self._norm

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensors) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}{list(shape)}" for name, shape in self.shapes.items())
        return f"Tensors({inside or 'empty'})"


EMPTY: Final[Tensors] = Tensors()
SHARED: Final = "shared/"
ARRAYS: Final = "arrays/"
OWN: Final = "own/"  # before the names of arrays that belong to one node alone


@lru_cache(maxsize=4)
def packed(shared: Tensors, arrays: Tensors) -> Tensors:
    """Return the state that all nodes hold alike, in one set of arrays.

    A round asks for it, and for its digest, several times, so the last results are kept.
    """
    alike = {SHARED + name: array for name, array in shared.items()}
    alike |= {ARRAYS + name: one for name, one in arrays.items() if not name.startswith(OWN)}
    return Tensors.taking(alike, shared.classes)


MEASURE: Final = "measure"  # the stage of a job that trains nothing
PRIVATE: Final = "private/"  # prefix of arrays in the carry that are trained and never exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message from one node to another: keyed, idempotent, refused if it is of another mesh.

    mesh, fingerprint: must equal the receiver's, or the message is refused.
    round: the sender's round, counted from 1; on messages of the kernel, the last round that the
    sender adopted. phase: the kind of message within the round ("hello", "prompts", ...).
    base: digest of what the tensors were computed from ("" if it does not matter): the
    prompts that the round began from or, after the first stage, the contributions that were merged
    before. On messages of the kernel: the digest of the prompts that the sender held after `round`.
    samples: number of training images, as the sender reports it; whoever uses it caps it.
    dtype: number format of the arrays; None if there are no arrays, or for the policy's wire_dtype.
    facts: small strings, such as the settings behind the fingerprint in a hello.
    members: news of members, on messages of the kernel. active: also there, whether the sender
    takes part in rounds (node/fednode/core/kernel.py). boot: also there, what the sender drew at
    its start; "" if nothing.
    """

    mesh: str
    fingerprint: str
    policy: str
    sender: str
    round: int
    phase: str
    tensors: Tensors = EMPTY
    base: str = ""
    samples: int = 0
    facts: Mapping[str, str] = field(default_factory=lambda: NO_FACTS)
    dtype: Dtype | None = field(default=None, compare=False)
    members: tuple[MemberUpdate, ...] = ()
    active: bool = True
    boot: str = field(default="", compare=False)


class Phase(StrEnum):
    """The kernel's kinds of messages; every other phase belongs to the policy."""

    HELLO = "hello"
    """The sender's settings, and its own entry in the list of members."""
    PING = "ping"
    INDIRECT = "indirect"
    """Asks the receiver to ping a third node for the sender."""
    MEMBERS = "members"
    """Digests or entries of the sender's list."""
    BYE = "bye"
    """Says goodbye."""


PHASES: Final = frozenset(Phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One task for a learner: to train tensors, or (stage MEASURE) only to measure them.

    seed: derived from (run seed, node name, round, stage), so that a run can be repeated.
    carry: what the previous report of this node carried (optimizer state and the like).
    reference: frozen tensors that the objective compares with (global prompts, slots of other
    nodes).
    rounds: number of rounds of the run, for schedules; 0 if the run has no end.
    domain: of the node's images, "" if none is set.
    measure: evaluate the trained tensors, because the node will use them as they are. Policies that
    merge set this to False and ask for a separate evaluation after the merge. A job of stage
    MEASURE with measure=False is a trial: it looks at validation images only.
    """

    round: int
    stage: str
    tensors: Tensors
    seed: int
    carry: Tensors = EMPTY
    reference: Tensors = EMPTY
    rounds: int = 0
    domain: str = ""
    measure: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job is: steps done, steps in all, and the latest loss."""

    step: int
    steps: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a job: tuned tensors, what to carry on, and figures for people.

    metrics: numbers by name: "loss" of the training; "validation" (accuracy 0..1) and
    "validation_loss" if the job measures and the node has a validation split; "own", "base", "new"
    in evaluation rounds.
    changed: names of the arrays that training changed, sorted.
    """

    tensors: Tensors
    metrics: Mapping[str, float]
    samples: int
    carry: Tensors = EMPTY
    seconds: float = 0.0
    steps: int = 0
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Everything that a policy must remember to go on after a restart; frozen and comparable.

    round: number of rounds adopted; the next round is round + 1.
    tensors: where the next round starts.
    tuned: the prompts that the node evaluates and predicts with.
    data, arrays: the policy's own counters and pools.
    """

    round: int
    tensors: Tensors
    tuned: Tensors
    carry: Tensors = EMPTY
    data: Mapping[str, Json] = field(default_factory=dict)
    arrays: Tensors = EMPTY

    @property
    def digest(self) -> str:
        """Return the digest of what all nodes hold alike, if the policy's nodes share a state."""
        return packed(self.tensors, self.arrays).digest


class MergeCounts(NamedTuple):
    """How many rounds a node ran, and how many of them merged a peer's prompts.

    A round that merged nothing counts as a round, whatever the reason: no live peer, a deadline,
    refused prompts. Its methods take by_wish: whether the node is meant to be alone.
    """

    rounds: int = 0
    merged: int = 0

    def never(self, by_wish: bool) -> bool:
        """Tell whether a node ran rounds, merged none of them, and was meant to merge them."""
        return not by_wish and self.rounds > 0 and self.merged == 0

    def sentence(self, by_wish: bool) -> str:
        """Return how many rounds merged what peers sent; "" if no round was counted."""
        if not self.rounds:
            return ""
        if by_wish:
            return f"all {self.rounds} rounds ran alone, as the settings ask"
        return f"{self.merged} of {self.rounds} rounds merged what peers sent"

    def warning(self, by_wish: bool) -> str:
        """Return the sentence if fewer than half of at least two rounds were merged; else ""."""
        few = not by_wish and self.rounds > 1 and 2 * self.merged < self.rounds
        return self.sentence(by_wish) if few else ""


BY_WISH: Final = "local"
"""The policy that exchanges nothing. Its nodes, and a node without peers, are alone by wish."""
NO_ROUNDS: Final = MergeCounts()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state that an Adopt makes durable, in one atomic step.

    best: the tensors with the highest validation accuracy so far; best_round and best_validation:
    their round and accuracy. metrics: of the round that was just adopted. merge_counts: of
    the rounds so far.
    """

    policy: PolicyState
    metrics: Mapping[str, float]
    best: Tensors = EMPTY
    best_round: int = 0
    best_validation: float = float("-inf")
    merge_counts: MergeCounts = NO_ROUNDS

    def used(self, keep_best: bool) -> tuple[Tensors, int]:
        if keep_best and self.best_round > 0:
            return self.best, self.best_round
        return self.policy.tuned, self.policy.round
