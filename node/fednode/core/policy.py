"""The contract of a gossip policy: when to tune, which peers to tell and how to merge.

A policy only decides; a host performs its decisions.
"""

from __future__ import annotations

import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

from fednode.core.events import (
    Adopted,
    Effect,
    Event,
    RoundDue,
    TimerFired,
    Tune,
    Tuned,
    TuneFailed,
)
from fednode.core.settings import Barrier, GuardSettings, Initial, RoundSettings, TopologySettings
from fednode.core.types import EMPTY, Job, Json, Message, PolicyState, Report, Tensors

DEADLINE: Final = "policy.deadline"  # timer that ends the wait for others in a round
CATCH_UP: Final = "policy.catch-up"
"""Timer of an attempt to take over the state of others; the round does not wait for it."""
RESEND: Final = "policy.resend"
# Pause before an undelivered message is sent again, while its peer lives.
RESEND_S: Final = 0.5


class Activity(StrEnum):
    """The activity of a policy, for status: its own phases, in four words."""

    IDLE = "idle"
    TUNING = "tuning"
    EXCHANGING = "exchanging"
    ADOPTING = "adopting"


def draw_seed(seed: int, name: str, round_number: int, purpose: str) -> int:
    """Return a 63-bit seed from (run seed, node name, round, purpose)."""
    text = f"{seed}\0{name}\0{round_number}\0{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def start_seed(start: Initial, seed: int, name: str) -> int:
    """Return the seed of a node's initial prompts: the run's seed, or a seed of this node alone."""
    return seed if start == "common" else draw_seed(seed, name, 0, "start")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What a policy may know of its node: its name, the peers in peers.yaml, its seed and rounds.

    PeerUp and PeerDown tell the policy which peers it exchanges prompts with, by the mesh's
    topology.

    mesh, policy, fingerprint: stamped on messages. fednode.core.kernel fills in the policy, the
    fingerprint, the mode of the rounds and norm_max.
    samples: number of training images of this node.
    domain: the domain (photo, sketch, ...) of this node's images, "" if none is set.
    address, id, proof: what this node tells about itself to nodes that do not list it
    (fednode.core.types.MemberUpdate).
    norm_max: largest Euclidean norm of prompts that is accepted from a peer or from a merge.
    start: "common" if all nodes begin from the same prompts, "own" if this node draws its own.
    boot: what each start of the node draws anew, eight hexadecimal digits; "" for nothing.
    private: privacy is on, so the node is paused if its state is older (starts.py).
    remote: a listed peer's address is not of this machine. grows: nodes join that are
    not listed.
    """

    name: str
    peers: tuple[str, ...]
    mesh: str
    seed: int
    rounds: RoundSettings
    policy: str = ""
    fingerprint: str = ""
    samples: int = 0
    domain: str = ""
    address: str = ""
    id: str = ""
    proof: bytes = b""
    topology: TopologySettings = field(default_factory=TopologySettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    norm_max: float = math.inf
    start: Initial = "common"
    boot: str = ""
    private: bool = False
    remote: bool = False
    grows: bool = False

    def norm_fault(self, tensors: Tensors) -> str:
        """Return what is wrong with the norm of tensors; "" if it is at most norm_max."""
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
            mesh=self.mesh,
            fingerprint=self.fingerprint,
            policy=self.policy,
            sender=self.name,
            round=round_number,
            phase=phase,
            tensors=tensors,
            samples=self.samples,
            facts=facts or {},
        )

    def job(
        self, round_number: int, stage: str, tensors: Tensors, carry: Tensors, **given: Any
    ) -> Job:
        """Return a job of this node. given: further fields of the job."""
        return Job(
            round=round_number,
            stage=stage,
            tensors=tensors,
            seed=self.draw_seed(round_number, stage),
            carry=carry,
            rounds=self.rounds.max,
            domain=self.domain,
            **given,
        )

    def random(self, round_number: int, purpose: str) -> random.Random:
        """Return a new generator for one draw, so that no generator has to be stored."""
        return random.Random(self.draw_seed(round_number, purpose))

    def draw_seed(self, round_number: int, purpose: str) -> int:
        return draw_seed(self.seed, self.name, round_number, purpose)

    @property
    def start_seed(self) -> int:
        return start_seed(self.start, self.seed, self.name)


@dataclass(frozen=True, slots=True)
class Step:
    """What a policy waits for in a round. job: the learner's, while it has one."""

    activity: Activity
    job: Job | None = None


IDLE, EXCHANGING, ADOPTING = (
    Step(activity) for activity in (Activity.IDLE, Activity.EXCHANGING, Activity.ADOPTING)
)


class Policy(ABC):
    """A running policy: decide when to tune, which peers to tell and how to merge.

    - Total: a policy handles any event in any state and never raises for a peer's fault. If one
      does, the kernel refuses the message, or goes on from the policy's last adopted state. A
      message may come late, and an equal one again.
    - Pure: it uses no clock, entropy, files or threads. Its timers' names start with "policy.".
    - It has at most one Tune in flight and ignores its own stale timers.
    - Restart-faithful: `restore(state())` of its method goes on as the original would.

    `tests/contract/policy_suite.py` checks these rules for every registered policy. A round
    begins with RoundDue(r). It ends when the policy's Adopt (with policy.round == r) is answered by
    Adopted.

    Attributes:
        shared_state: whether all nodes are to hold the same state after a round
        step: what the policy waits for
    """

    def __init__(self, method: PolicyMethod) -> None:
        self.context, self.name, self.step = method.context, method.name, IDLE
        self.shared_state = method.shared_state

    @property
    @abstractmethod
    def round(self) -> int:
        """Return the round of `state()`: the last one that the policy ended."""

    @property
    def activity(self) -> Activity:
        return self.step.activity

    @abstractmethod
    def state(self) -> PolicyState:
        """Return all that must survive a restart."""

    @abstractmethod
    def fault(self, message: Message) -> str:
        """Return why a message does not fit this policy's phases and shapes; "" if it fits."""

    def handle(self, now: float, event: Event) -> Sequence[Effect]:
        """Take one event; return the effects to perform, in order."""
        match event:
            case RoundDue():
                return self._begin(event) if self.step == IDLE else []
            case Tuned(job=job, report=report):
                return self._trained(report) if job == self.step.job else []
            case TuneFailed(job=job):
                self.step = IDLE if job == self.step.job else self.step
                return []
            case Adopted():
                self.step = IDLE if self.step == ADOPTING else self.step
                return []
            case TimerFired(name=name) if name == DEADLINE:
                return self._give_up(now) if self.step == EXCHANGING else []
        return self._react(event)

    @abstractmethod
    def _begin(self, event: RoundDue) -> list[Effect]:
        """Begin a round."""

    @abstractmethod
    def _trained(self, report: Report) -> list[Effect]:
        """Go on after the learner's job."""

    @abstractmethod
    def _give_up(self, now: float) -> list[Effect]:
        """End the wait for peers, because the deadline has passed."""

    @abstractmethod
    def _react(self, event: Event) -> list[Effect]:
        """Handle messages, peers that come and go, and all other timers."""

    def _tune(self, job: Job) -> list[Effect]:
        self.step = Step(Activity.TUNING, job)
        return [Tune(job)]


class PolicyMethod(ABC):
    """The base of every method: what the registry reads of it, and how its policy starts.

    Attributes:
        name: as in policy.name
        config_type: the class of the section `policy` of node.yaml, without the name
        prompts: the PromptModule that is tuned (learn/prompt_module.py), or a function that builds
            it; None: a base class, which no registry offers
        tuning: the method's own defaults of the section `tuning`, from its paper or code
        rounds: the method's own defaults of the section `rounds`
        modes: the values of rounds.mode that the method works with, the default one first
        shared_state: whether all nodes are to hold the same state after a round
        norm_checked: whether the norm of what peers send is limited; a method that turns it off
            checks the content (`fault`)
        state_bytes: of the largest state, if it grows with the members
        policy: the class of its running policy
    """

    name: ClassVar[str] = ""
    config_type: ClassVar[type[Any]]
    prompts: ClassVar[Callable[..., Any] | None] = None
    tuning: ClassVar[Mapping[str, Json]] = {}
    rounds: ClassVar[Mapping[str, Json]] = {}
    modes: ClassVar[tuple[Barrier, ...]] = ("sync",)
    shared_state: ClassVar[bool] = False
    norm_checked: ClassVar[bool] = True
    state_bytes: ClassVar[int] = 0
    policy: ClassVar[Callable[..., Policy]]

    def __init__(self, config: Any, context: NodeContext) -> None:
        self.config = config
        self.context = context

    @classmethod
    def settings_fault(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Return which settings do not fit together, "" if all do. An override asks super()."""
        if rounds.mode in (None, *cls.modes):
            return ""
        only = f"policy {cls.name} works with {cls.modes[0]} alone"
        return f"rounds.mode is {rounds.mode!r}; {only}: remove rounds.mode."

    @classmethod
    def paper_bytes(
        cls, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int | None:
        """Return the bytes that the method's paper would count for a run, None if it counts none.

        Papers with a server count what each client sends up and gets down in a round, in float32,
        times clients and rounds. shapes: of the exchanged arrays. clients: those that take part in
        a round.
        """
        return None

    def first_state(self, initial: Tensors) -> PolicyState:
        return PolicyState(0, initial, EMPTY)

    @classmethod
    def start(cls, config: Any, context: NodeContext, initial: Tensors) -> Policy:
        return cls.restore(config, context, cls(config, context).first_state(initial))

    @classmethod
    def restore(cls, config: Any, context: NodeContext, state: PolicyState) -> Policy:
        """Return a policy that goes on from a stored state."""
        return cls.policy(cls(config, context), state)


PolicyKind = type[PolicyMethod]  # the registry's entry under a policy's name
