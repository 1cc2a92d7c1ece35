"""A node that runs nothing: it shows what a test gives it, and notes what status asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.core.events import Command
from fednode.core.members.table import Member
from fednode.core.policy import Activity
from fednode.core.types import Progress
from fednode.core.view import KernelView, Life
from fednode.errors import IdentityError
from fednode.observe.telemetry import Telemetry


@dataclass
class FakeNode:
    """A fednode.observe.reply.NodeView with the given peers."""

    peers: tuple[Member, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)
    progress: Progress | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = "f" * 64
    counts: Mapping[str, int] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    revoked: list[bytes] = field(default_factory=list)

    def view(self) -> KernelView:
        return KernelView(
            life=Life.RUNNING, activity=Activity.IDLE, round=3, rounds_max=9, metrics={},
            refused={}, peers=self.peers, best_round=0, best_validation=0.0, alone=False,
        )  # fmt: skip

    def refused(self) -> Mapping[str, int]:
        return self.counts

    def command(self, command: Command) -> None:
        self.commands.append(command)

    def revoke(self, proof: bytes) -> str:
        if proof == b"wrong":
            raise IdentityError("the mesh key did not sign this revocation")
        self.revoked.append(proof)
        return "KEY"
