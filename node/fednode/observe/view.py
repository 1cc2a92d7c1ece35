"""The protocol of a running node: what the status service reads, and the two calls it may make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fednode.core.events import Command
from fednode.core.types import Json, Progress
from fednode.core.view import KernelView
from fednode.observe.telemetry import Telemetry


class NodeView(Protocol):
    """A running node, as status, page and metrics see it; the driver gives one.

    Every call is made on the node's event loop and returns at once.
    """

    @property
    def telemetry(self) -> Telemetry:
        """Return the node's counters, events and latest accuracies."""

    @property
    def progress(self) -> Progress | None:
        """Return how far the running tuning is; None if no tuning runs."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Return where each peer listens, by its name."""

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the settings that all peers must agree on."""

    def view(self) -> KernelView:
        """Return the node as its kernel sees it."""

    def shown(self) -> Mapping[str, Json]:
        """Return what the policy shows of itself (fednode.core.policy.Policy.shown)."""

    def refused(self) -> Mapping[str, int]:
        """Return the number of messages that were not taken, by reason."""

    def command(self, command: Command) -> None:
        """Pass an operator's command to the kernel."""

    def revoke(self, proof: bytes) -> str:
        """Store a revocation, tell it to the mesh, and return the id of the revoked key.

        Raise IdentityError if the proof is invalid.
        """
