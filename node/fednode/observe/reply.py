"""A node's status as a reply, without what only its operator sees (audience.py adds that).

It is made of what is known of a node from the start (About), and of what runs (NodeView).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fednode import __version__
from fednode.core.events import Command
from fednode.core.policy import Activity
from fednode.core.types import Progress
from fednode.core.view import KernelView, Life
from fednode.learn.learner import Learner
from fednode.observe import audience, present
from fednode.observe.telemetry import Exchanged, Telemetry
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import status_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What is known of a node before its model is loaded.

    caution: about its policy's settings. tells_classes: data.tell_classes. tells_gain: members may
    see what it gains. transport: reaches its peers; None in a mesh without keys. shared: the
    settings that all nodes share, as JSON.
    """

    name: str
    mesh: str
    policy: str
    node_id: str
    address: str
    model: str
    caution: str = ""
    tells_classes: bool = True
    tells_gain: bool = True
    transport: GrpcTransport | None = None
    shared: bytes = b""


class NodeView(Protocol):
    """A running node, as status, page and metrics see it: the driver.

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

    def refused(self) -> Mapping[str, int]:
        """Return the number of messages that were not taken, by reason."""

    def command(self, command: Command) -> None:
        """Pass an operator's command to the kernel."""

    def revoke(self, proof: bytes) -> str:
        """Store a revocation, tell it to the mesh, and return the id of the revoked key.

        Raise IdentityError if the proof is invalid.
        """


class Admission(Protocol):
    """The admission of newcomers, as page and status service see it: the node's sponsor.

    `sites` and `invite` return JSON types; settle, invite and take_certificate raise FednodeError.
    """

    @property
    def open(self) -> bool:
        """Tell whether the node may admit sites now."""

    def warning(self) -> str:
        """Return what is wrong with the node's membership; "" if nothing is."""

    def take_certificate(self, pem: bytes) -> str:
        """Take the right to admit newcomers, which the mesh key signed; return what follows."""

    async def sites(self) -> dict[str, Any]:
        """Return the sites that wait, the members whose keys are known, and the mesh's words."""

    async def invite(self, site: str, approve: bool) -> dict[str, Any]:
        """Make a link for a site."""

    async def settle(self, name: str, id: str, good: bool) -> str:
        """Admit or refuse a key that knocked for a name; return what happens next."""


def loading(about: About, uptime_s: float, page: str) -> status_pb2.StatusReply:
    """Return the status of a node whose model is not loaded yet. page: its URL."""
    client = None if about.transport is None else about.transport.relay
    relays = [] if client is None else client.relays
    trouble = "" if client is None else client.trouble
    return status_pb2.StatusReply(
        name=about.name,
        node_id=about.node_id,
        mesh=about.mesh,
        version=__version__,
        address=about.address,
        policy=about.policy,
        life=Life.LOADING,
        phase=Activity.IDLE,
        uptime_s=uptime_s,
        clock=time.time(),
        model=about.model,
        pid=os.getpid(),
        page=page,
        relays=[
            status_pb2.Relay(address=relay.at.address, state=relay.state, why=relay.why)
            for relay in relays
        ],
        warnings=[trouble] if trouble else [],
    )


def running(node: NodeView, learner: Learner, about: About) -> status_pb2.StatusReply:
    """Return what to add to `loading` for a node that runs."""
    view, telemetry, progress = node.view(), node.telemetry, node.progress
    reply = status_pb2.StatusReply(
        fingerprint=node.fingerprint,
        life=view.life,
        round=view.round,
        rounds_max=view.rounds_max,
        phase=view.activity,
        step=progress.step if progress else 0,
        steps=progress.steps if progress else 0,
        metrics=dict(view.metrics),
        measured=telemetry.measured,
        measured_round=telemetry.measured_at,
        round_s=telemetry.round_s,
        samples=learner.samples,
        classes=learner.classes,
        backbone=learner.backbone,
        peers=_peers(node, view, about.transport),
        traffic=_traffic(telemetry.total),
        refused=node.refused(),
        alone=present.alone(view),
        together=view.merge_counts.sentence(view.by_wish),
        rounds_run=view.merge_counts.rounds,
        rounds_merged=view.merge_counts.merged,
        alone_by_wish=view.by_wish,
        best_round=view.best_round,
        best_validation=view.best_validation if view.best_round else 0.0,
        notes=present.notes(view, about.name),
        warnings=present.warnings(view, telemetry, about.name),
    )
    reply.events.extend(
        audience.event_of(logged) for logged in present.troubles(telemetry.events, view)
    )
    return reply


def _peers(
    node: NodeView, view: KernelView, transport: GrpcTransport | None
) -> list[status_pb2.Peer]:
    now = asyncio.get_running_loop().time()
    peers = []
    for peer in view.peers:
        address, path, why = node.addresses.get(peer.name, ""), "", ""
        if peer.state == "revoked" and not address:  # it was removed before this node met it
            continue
        if transport is not None and address:
            path, why = transport.path(address, peer.name)
        peers.append(
            status_pb2.Peer(
                name=peer.name,
                address=address,
                state=peer.state,
                round=peer.round,
                heard_s=now - peer.heard_at if peer.heard_at >= 0 else -1.0,
                reason=peer.reason,
                unreached=peer.unreached,
                path=path,
                path_why=why,
                traffic=_traffic(node.telemetry.peers.get(peer.name, Exchanged())),
            )
        )
    return peers


def _traffic(traffic: Exchanged) -> status_pb2.Traffic:
    return status_pb2.Traffic(**traffic.as_dict())
