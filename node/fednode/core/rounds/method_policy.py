"""A method of mesh-wide rounds as a policy, which the registry can offer and a node can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fednode.core.policy import NodeContext
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.exchange import participants
from fednode.core.rounds.method import Method, sync_fault
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import EMPTY, Json, PolicyState, Tensors


@dataclass(frozen=True, slots=True)
class MethodPolicy:
    """The policy that runs a method in mesh-wide rounds (fednode.core.policy.PolicyKind)."""

    method: type[Method]
    shared_state: ClassVar[bool] = True
    default_mode: ClassVar[Barrier] = "sync"
    modes: ClassVar[tuple[Barrier, ...]] = ("sync",)

    @property
    def name(self) -> str:
        """Return the method's name, as in policy.name."""
        return self.method.name

    @property
    def config_type(self) -> type[Any]:
        """Return the class of the method's settings."""
        return self.method.config_type

    @property
    def tuning(self) -> Mapping[str, Json]:
        """Return the method's own defaults of the section `tuning`."""
        return self.method.tuning

    @property
    def rounds(self) -> Mapping[str, Json]:
        """Return the method's own defaults of the section `rounds`."""
        return self.method.rounds

    @property
    def norm_checked(self) -> bool:
        """Tell whether the norm of what peers send is limited."""
        return self.method.norm_checked

    def settings_fault(self, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Return why settings do not fit together; "" if they do."""
        fault = sync_fault(self.name, rounds)
        return fault or self.method.settings_fault(config, rounds, domain)

    def paper_bytes(
        self, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int | None:
        """Return the bytes that the method's paper would count, of the clients that take part."""
        part = min(participants(config) or clients, clients)
        return self.method.paper_bytes(config, shapes, rounds, part)

    def start(self, config: Any, context: NodeContext, initial: Tensors) -> Rounds:
        """Begin at round 0 with initial tensors."""
        method = self.method(config, context)
        first = method.first(initial)
        state = PolicyState(0, first.shared, EMPTY, first.carry, arrays=first.arrays)
        return Rounds(method, context, state)

    def restore(self, config: Any, context: NodeContext, state: PolicyState) -> Rounds:
        """Go on from a stored state."""
        return Rounds(self.method(config, context), context, state)
