"""Values that every part of fednode speaks in. Pure: stdlib and numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

Dtype = Literal["float32", "float16", "int8"]
"""How arrays travel."""
DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)

NO_FACTS: Final[Mapping[str, str]] = MappingProxyType({})

Standing = Literal["alive", "suspect", "dead", "left", "revoked"]
"""What may be said of a member."""
STANDINGS: Final[tuple[Standing, ...]] = get_args(Standing)


@dataclass(frozen=True, slots=True)
class Update:
    """What one node tells of a member of the mesh, itself or another (SWIM, section 4.2).

    incarnation: the member's own count of how often it contradicted a suspicion; only it raises it.
    address, id: where it is reached and its key's fingerprint, "" where the teller does not know.
    proof: a lease or a revocation, signed by the mesh key; hosts check it, the core passes it on.
    """

    name: str
    state: Standing
    incarnation: int = 0
    address: str = ""
    id: str = ""
    proof: bytes = b""


class Tensors(Mapping[str, Array]):
    """Immutable named float32 arrays: sorted names, read-only, equal and hashed by digest.

    The one form in which prompts live outside the learner. Arrays are copied in, so no caller
    can change what was stored, sent or hashed.
    """

    __slots__ = ("_arrays", "_digest")

    def __init__(self, arrays: Mapping[str, npt.ArrayLike] | None = None) -> None:
        frozen: dict[str, Array] = {}
        for name in sorted(arrays or {}):
            array = np.array((arrays or {})[name], dtype=np.float32, order="C", copy=True)
            array.setflags(write=False)
            frozen[name] = array
        self._arrays = frozen
        self._digest = ""

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def digest(self) -> str:
        """SHA-256 over names, shapes and little-endian bytes, in hexadecimal."""
        if not self._digest:
            hasher = hashlib.sha256()
            for name, array in self._arrays.items():
                hasher.update(f"{name}\0{array.shape}\0".encode())
                hasher.update(array.astype("<f4", copy=False).tobytes())
            self._digest = hasher.hexdigest()
        return self._digest

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in float32."""
        return sum(array.nbytes for array in self._arrays.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each array, by name."""
        return {name: tuple(array.shape) for name, array in self._arrays.items()}

    def finite(self) -> bool:
        """Tell whether every number is finite."""
        return all(bool(np.isfinite(array).all()) for array in self._arrays.values())

    def norm(self) -> float:
        """Euclidean norm of everything together, accumulated in float64."""
        squares = (
            float(np.square(array, dtype=np.float64).sum()) for array in self._arrays.values()
        )
        return float(np.sqrt(sum(squares)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensors) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}{list(shape)}" for name, shape in self.shapes.items())
        return f"Tensors({inside or 'empty'})"


EMPTY: Final[Tensors] = Tensors()
MEASURE: Final = "measure"
"""The stage of a job that trains nothing."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one node tells another. Keyed, idempotent, refused when its frame of reference differs.

    mesh, fingerprint: must equal the receiver's, or the message is refused.
    round: the sender's round, counted from 1. phase: what it is within the round ("hello",
    "prompts", ...).
    contributors: digest of the set of senders it was computed from ("" where none matters); on the
    kernel's own messages the digest of what the sender held after `round`.
    samples: training images behind it (a self-reported weight, to be capped by who uses it).
    dtype: how its arrays travel; None where there are none, or for the policy's wire_dtype.
    facts: small strings, such as the settings behind the fingerprint in a hello.
    members: news of who is in the mesh, on the kernel's own messages.
    """

    mesh: str
    fingerprint: str
    policy: str
    sender: str
    round: int
    phase: str
    tensors: Tensors = EMPTY
    contributors: str = ""
    samples: int = 0
    facts: Mapping[str, str] = field(default_factory=lambda: NO_FACTS)
    dtype: Dtype | None = field(default=None, compare=False)
    members: tuple[Update, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One task for a learner: to train tensors, or (stage MEASURE) only to measure them.

    seed: derived from (run seed, node name, round, stage), so that a run repeats itself.
    carry: what the previous report of this node carried (optimizer state and the like).
    reference: frozen tensors that the objective compares with (global prompts, slots of others).
    rounds: how many rounds the run has, for schedules; 0 where it has no end.
    domain: of the node's images, "" where nobody said. measure: whether what was trained is what
    the node will use, to be measured with it; a policy that merges measures after the merge. A job
    of stage MEASURE that is not so marked is a trial: validation images alone are looked at.
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
    """How far a running job is: steps done of all, and the latest loss."""

    step: int
    steps: int
    loss: float


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a job: tuned tensors, what to carry on, and figures for people.

    metrics: plain numbers by name; "loss" always, "validation" (accuracy 0..1 on the node's own
    validation split) where there is one, and "own", "base", "new" on evaluation rounds.
    changed: names of the arrays that training moved, sorted; the others had no gradient.
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
    """All that a policy must remember to go on after a restart; frozen and comparable.

    round: rounds adopted so far; the next to be run is round + 1.
    tensors: where the next round starts. tuned: the node's own result of its last tuning, which is
    what it evaluates and predicts with. data and arrays: the policy's own, counters and pools.
    """

    round: int
    tensors: Tensors
    tuned: Tensors
    carry: Tensors = EMPTY
    data: Mapping[str, Json] = field(default_factory=dict)
    arrays: Tensors = EMPTY


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an Adopt makes durable, in one atomic step.

    best: tuned tensors with the highest validation accuracy so far, and that accuracy and round.
    metrics: of the round that was just adopted.
    """

    policy: PolicyState
    metrics: Mapping[str, float]
    best: Tensors = EMPTY
    best_round: int = 0
    best_validation: float = float("-inf")

    def used(self, keep_best: bool) -> tuple[Tensors, int]:
        """Return the prompts that the node predicts with, and of which round they are."""
        if keep_best and self.best_round > 0:
            return self.best, self.best_round
        return self.policy.tuned, self.policy.round
