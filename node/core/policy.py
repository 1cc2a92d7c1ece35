"""What a gossip policy is: when to tune, whom to tell and how to merge. It does none of it."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self

from node.core.events import Effect, Event
from node.core.settings import Barrier, GuardSettings, Initial, RoundSettings, TopologySettings
from node.core.types import EMPTY, Json, Message, PolicyState, Tensors

DEADLINE: Final = "policy.deadline"
"""Timer of the longest wait for others in a round."""
CATCH_UP: Final = "policy.catch-up"
"""Timer of an attempt to take over the state of others; the round does not wait for it."""
RESEND: Final = "policy.resend"
# Between tries to tell a live peer what its round waits for; its death or the deadline ends them.
RESEND_S: Final = 0.5


def draw_seed(seed: int, name: str, round_number: int, purpose: str) -> int:
    """Return a 63-bit seed from (run seed, node name, round, purpose)."""
    text = f"{seed}\0{name}\0{round_number}\0{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def start_seed(start: Initial, seed: int, name: str) -> int:
    """Return the seed of a node's initial prompts: the run's seed, or one for this node alone."""
    return seed if start == "common" else draw_seed(seed, name, 0, "start")


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may know of its node: its name, the peers in peers.yaml, its seed and rounds.

    PeerUp and PeerDown tell it of those that it exchanges prompts with, by the mesh's topology.

    mesh, fingerprint: to stamp messages with. samples: training images of this node. domain: which
    of the mesh's domains (photo, sketch, ...) its images are of, "" where nobody said. address, id,
    proof: what this node tells of itself to those who do not list it (node.core.types.Update).
    norm_max: of what a peer may say and a merge may make, by its Euclidean norm. start: whether the
    node's initial prompts are those of all nodes or its own draw.
    """

    name: str
    peers: tuple[str, ...]
    mesh: str
    policy: str
    fingerprint: str
    seed: int
    rounds: RoundSettings
    samples: int = 0
    domain: str = ""
    address: str = ""
    id: str = ""
    proof: bytes = b""
    topology: TopologySettings = field(default_factory=TopologySettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    norm_max: float = math.inf
    start: Initial = "common"

    def overlong(self, tensors: Tensors) -> str:
        """Say how the norm of tensors is beyond norm_max, or none at all; "" where it is not."""
        norm, most = tensors.norm(), self.norm_max
        return "" if norm <= most else f"norm is {norm:.3g}; at most {most:.3g} is taken"

    def message(
        self,
        round_number: int,
        phase: str,
        tensors: Tensors = EMPTY,
        facts: Mapping[str, str] | None = None,
    ) -> Message:
        """Return a message of this node, stamped with its mesh, configuration, policy and name."""
        return Message(
            self.mesh,
            self.fingerprint,
            self.policy,
            self.name,
            round_number,
            phase,
            tensors,
            samples=self.samples,
            facts=facts or {},
        )

    def common_random(self, round_number: int, purpose: str) -> random.Random:
        """Return the generator for a draw that all nodes of a mesh make alike."""
        digest = hashlib.sha256(f"{self.seed}\0{round_number}\0{purpose}".encode()).digest()
        return random.Random(int.from_bytes(digest[:8], "big") >> 1)

    def random(self, round_number: int, purpose: str) -> random.Random:
        """Return the generator for one draw: fresh, so that none is ever saved."""
        return random.Random(self.draw_seed(round_number, purpose))

    def draw_seed(self, round_number: int, purpose: str) -> int:
        """Return a 63-bit seed from (run seed, node name, round, purpose)."""
        return draw_seed(self.seed, self.name, round_number, purpose)

    @property
    def start_seed(self) -> int:
        """Return the seed of this node's initial prompts."""
        return start_seed(self.start, self.seed, self.name)


class Policy(Protocol):
    """Decide when to tune, whom to tell and how to merge; do none of it.

    Total (any event in any state), pure (no clock, entropy, files, threads), never raises for a
    peer's fault, has at most one Tune in flight, ignores its own stale timers, and is
    restart-faithful: `restore(state())` goes on as the original would. `tests/contract/
    policies.py` checks this for every registered policy. A round begins with RoundDue(r) and
    ends when the policy's Adopt (with policy.round == r) is answered by Adopted.
    """

    name: ClassVar[str]
    config_type: ClassVar[type[Any]]
    default_mode: ClassVar[Barrier]
    modes: ClassVar[tuple[Barrier, ...]]
    """The barriers that it can work with."""
    tuning: ClassVar[Mapping[str, Json]]
    """Defaults of the section `tuning` that its paper or code gives, where they differ."""
    shared_state: ClassVar[bool]
    repeatable: ClassVar[frozenset[str]]
    """Phases in which the same content may come twice and means something each time."""

    @classmethod
    def unfit(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Say why settings that are fine by themselves do not go together; "" where they do."""
        ...

    @classmethod
    def start(cls, config: Any, context: Context, initial: Tensors) -> Self:
        """Begin at round 0 with initial tensors."""
        ...

    @classmethod
    def restore(cls, config: Any, context: Context, state: PolicyState) -> Self:
        """Go on from a stored state."""
        ...

    def handle(self, now: float, event: Event) -> Sequence[Effect]:
        """Take one event; return what to do, in order. Timer names start with "policy."."""
        ...

    def state(self) -> PolicyState:
        """Return all that must survive a restart."""
        ...

    def fault(self, message: Message) -> str:
        """Say why a message does not fit this policy's phases and shapes; "" where it does."""
        ...

    @property
    def phase(self) -> str:
        """What it is doing, for status: "idle", "tuning", "exchanging" or "adopting"."""
        ...
