"""What a daemon says of itself over the status RPC, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from node.runtime.client import Client
from node.wire.gen import status_pb2


@dataclass(frozen=True, slots=True)
class Bytes:
    """Messages and bytes of one node, each way, counted as status.proto says."""

    messages_in: int = 0
    messages_out: int = 0
    payload_in: int = 0
    payload_out: int = 0
    serialized_in: int = 0
    serialized_out: int = 0
    wire_in: int = 0
    wire_out: int = 0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as it is now. metrics: accuracies are fractions. peers, selected: by peer name."""

    name: str
    life: str = "waiting"
    phase: str = "idle"
    round: int = 0
    rounds_max: int = 0
    step: int = 0
    steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)
    selected: Mapping[str, int] = field(default_factory=dict)
    traffic: Bytes = field(default_factory=Bytes)
    refused: Mapping[str, int] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    alone: bool = False
    policy: str = ""
    version: str = ""
    model: str = ""
    backbone: str = ""
    samples: int = 0
    pid: int = 0

    @property
    def finished(self) -> bool:
        """Tell whether the node is through with its rounds (it still serves)."""
        return self.life == "finished"


@dataclass(frozen=True, slots=True)
class RoundStatus:
    """One adopted round; traffic: of the node up to and including it."""

    round: int
    metrics: Mapping[str, float]
    traffic: Bytes = field(default_factory=Bytes)
    digest: str = ""


class Observer(Protocol):
    """Ask daemons how they are; raise Unreachable where one does not answer in time."""

    async def status(self, address: str) -> NodeStatus:
        """Return the node at an address as it is now."""
        ...

    async def history(self, address: str) -> Sequence[RoundStatus]:
        """Return all adopted rounds of the node at an address, oldest first."""
        ...

    async def close(self) -> None:
        """Drop all connections."""
        ...


class RpcObserver:
    """Observe through the status RPC."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or Client()

    async def status(self, address: str) -> NodeStatus:
        """Return the node at an address as it is now."""
        return status_of(await self._client.status(address))

    async def history(self, address: str) -> Sequence[RoundStatus]:
        """Return all adopted rounds of the node at an address, oldest first."""
        return [round_of(one) for one in await self._client.history(address)]

    async def close(self) -> None:
        """Drop all connections."""
        await self._client.close()


def traffic_of(message: status_pb2.Traffic) -> Bytes:
    """Return a Traffic message as a plain value."""
    return Bytes(**{name: int(getattr(message, name)) for name in Bytes.__slots__})


def status_of(reply: status_pb2.StatusReply) -> NodeStatus:
    """Return a StatusReply message as a plain value."""
    return NodeStatus(
        name=reply.name,
        life=reply.life,
        phase=reply.phase,
        round=reply.round,
        rounds_max=reply.rounds_max,
        step=reply.step,
        steps=reply.steps,
        metrics=dict(reply.metrics),
        peers={peer.name: peer.state for peer in reply.peers},
        selected={peer.name: peer.selected for peer in reply.peers},
        traffic=traffic_of(reply.traffic),
        refused=dict(reply.refused),
        events=tuple(event.text for event in reply.events),
        alone=reply.alone,
        policy=reply.policy,
        version=reply.version,
        model=reply.model,
        backbone=reply.backbone,
        samples=reply.samples,
        pid=reply.pid,
    )


def round_of(message: status_pb2.Round) -> RoundStatus:
    """Return a Round message as a plain value."""
    return RoundStatus(
        round=message.round,
        metrics=dict(message.metrics),
        traffic=traffic_of(message.traffic),
        digest=message.digest,
    )
