"""What a node runs with under its settings: its context, and what it tunes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fednode.app.network import NodeNetwork
from fednode.app.plan import NodePlan
from fednode.app.saved import remember
from fednode.core.policy import NodeContext
from fednode.learn.learner import Learner, told
from fednode.runtime.worker import Learning
from fednode.settings.read import start_of

if TYPE_CHECKING:  # the accountant's library takes a moment to load
    from fednode.learn.private import PrivateLearner


def context_of(plan: NodePlan, mesh: NodeNetwork, learner: Learner, boot: str) -> NodeContext:
    """Return what a node's policy may know. boot: what this start drew (NodeContext)."""
    settings = plan.settings
    return NodeContext(
        name=plan.name,
        peers=tuple(peer.name for peer in plan.others),
        mesh=plan.peers.mesh,
        seed=settings.seed,
        rounds=settings.rounds,
        samples=told(learner)[1],
        domain=settings.data.domain,
        address=plan.address,
        id="" if plan.peers.insecure else mesh.identity.id,
        proof=mesh.identity.proof,
        topology=settings.topology,
        guard=settings.guard,
        start=start_of(settings),
        remote=plan.remote,
        introduced=plan.peers.grows,
        boot=boot,
        private=settings.privacy.clip is not None,
    )


def learning_of(plan: NodePlan, learner: PrivateLearner) -> Learning:
    """Return what a node tunes with."""
    return Learning(
        learner=learner,
        dtype=plan.policy.wire_dtype,
        remember=lambda classes: remember(plan.state, plan.name, plan.settings, classes),
        spend=learner.missed,
    )
