"""The control: tune and adopt, without any exchange; data, steps and optimizer as elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fednode.core.events import Adopt, Adopted, Effect, Event, RoundDue, Tune, Tuned, TuneFailed
from fednode.core.policy import Activity, NodeContext, Policy
from fednode.core.settings import STRICT, Barrier, RoundSettings
from fednode.core.types import EMPTY, Job, Json, Message, PolicyState, Snapshot, Tensors


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """There is no exchange to configure."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    head: Literal["prompt", "gda", "gda_zero_shot", "class_means"] = "prompt"
    """What a node classifies with. prompt: a tuned prompt. gda: a Gaussian classifier from sums
    over the node's images, the one of policy gda without an exchange. gda_zero_shot: Gaussian
    discriminant analysis with zero-shot logits (arXiv 2402.04087). class_means: cosines with the
    class means. All but prompt take no gradient step, so one round is enough."""


class Local:
    """Tune round after round on the node's own images alone."""

    name: ClassVar[str] = "local"
    config_type: ClassVar[type[LocalConfig]] = LocalConfig
    default_mode: ClassVar[Barrier] = "async"
    modes: ClassVar[tuple[Barrier, ...]] = ("async", "sync")
    tuning: ClassVar[Mapping[str, Json]] = {}
    shared_state: ClassVar[bool] = False
    repeatable: ClassVar[frozenset[str]] = frozenset()
    shown = Policy.shown

    def __init__(self, context: NodeContext, state: PolicyState) -> None:
        self._context = context
        self._state = state
        self._job: Job | None = None
        self._adopting = False

    @classmethod
    def settings_fault(cls, config: LocalConfig, rounds: RoundSettings, domain: str) -> str:
        """Return "": every node can run this policy."""
        return ""

    @classmethod
    def paper_bytes(
        cls, config: LocalConfig, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> None:
        """Return None: nothing is exchanged."""
        return

    @classmethod
    def start(cls, config: LocalConfig, context: NodeContext, initial: Tensors) -> Self:
        """Begin at round 0 with initial tensors."""
        return cls(context, PolicyState(0, initial, EMPTY))

    @classmethod
    def restore(cls, config: LocalConfig, context: NodeContext, state: PolicyState) -> Self:
        """Continue from a stored state."""
        return cls(context, state)

    def state(self) -> PolicyState:
        """Return the state that must survive a restart."""
        return self._state

    @property
    def round(self) -> int:
        """Return the round that ended last."""
        return self._state.round

    @property
    def phase(self) -> Activity:
        """Return TUNING, ADOPTING or IDLE."""
        if self._job is not None:
            return Activity.TUNING
        return Activity.ADOPTING if self._adopting else Activity.IDLE

    def fault(self, message: Message) -> str:
        """Refuse every message: this policy has none."""
        return f"policy local exchanges nothing, and got phase {message.phase!r}"

    def handle(self, now: float, event: Event) -> Sequence[Effect]:
        """Tune when a round is due; adopt the tuned prompts."""
        match event:
            case RoundDue(round=number) if self.phase is Activity.IDLE:
                self._job = Job(
                    round=number,
                    stage="prompts",
                    tensors=self._state.tensors,
                    seed=self._context.draw_seed(number, "prompts"),
                    carry=self._state.carry,
                    rounds=self._context.rounds.max,
                    domain=self._context.domain,
                )
                return [Tune(self._job)]
            case Tuned(job=job, report=report) if job == self._job:
                self._job = None
                self._adopting = True
                self._state = PolicyState(job.round, report.tensors, report.tensors, report.carry)
                return [Adopt(Snapshot(self._state, report.metrics))]
            case TuneFailed(job=job) if job == self._job:
                self._job = None
            case Adopted() if self._adopting:
                self._adopting = False
            case _:
                pass
        return []
