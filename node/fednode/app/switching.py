"""What a node needs to run under another settings document, and the switch to it on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fednode.app.documents import DocumentFolder, Known, with_relays
from fednode.app.network import NodeNetwork
from fednode.app.parts import context_of
from fednode.app.plan import NodePlan, disagreements, facts_of, free_facts, learner_of, under
from fednode.app.saved import remember
from fednode.app.sums import sums_fault
from fednode.core.assemble import beginning_of, parts_of
from fednode.core.run import Parts
from fednode.data.base import Told, silent
from fednode.errors import ConfigError
from fednode.identity.document import Content
from fednode.learn.learner import Learner
from fednode.settings.agreed import agreed
from fednode.settings.differences import ROUNDS, Change, begins_anew, changes
from fednode.storage.store import Store

if TYPE_CHECKING:  # the accountant's library takes a moment to load
    from fednode.learn.private import PrivateLearner


@dataclass(frozen=True, slots=True)
class Ready:
    """A node that can run under a document: its plan, and the learner without privacy."""

    plan: NodePlan
    learner: Learner
    anew: bool


def changed(plan: NodePlan, content: Content) -> list[Change]:
    """Return what a document changes for a node."""
    was = [(relay.address, relay.id) for relay in plan.peers.relays]
    now = list(content.relays) or was
    return changes(agreed(plan.settings), dict(content.settings), was, now)


def anew(plan: NodePlan, found: list[Change]) -> bool:
    """Tell whether the rounds begin anew after changes.

    A change of rounds.max lets them go on, unless the policy's averages weigh a round by it.
    """
    weighs = ROUNDS not in free_facts(plan)
    return begins_anew(found) or (weighs and any(key == ROUNDS for key, _, _ in found))


def prepare(known: Known, plan: NodePlan, learner: Learner, working: Told = silent) -> Ready:
    """Return what a node needs under a document; raise FednodeError if it cannot run so.

    It blocks. plan, learner: those in use; the learner is used again if the same settings make it.
    """
    fresh = under(plan, known.content)
    same = _inputs(fresh) == _inputs(plan)
    made = learner if same else learner_of(fresh.settings, fresh.name, told=working)
    if fault := sums_fault(fresh, made):
        raise ConfigError(fault)
    return Ready(fresh, made, anew(plan, changed(plan, known.content)))


def renewed(made: NodePlan, now: NodePlan, content: Content) -> NodePlan:
    """Return a plan that was made under a document, with the peers that the node goes by now."""
    assert now.own is not None
    return replace(made, own=now.own, peers=with_relays(now.own.peers, content))


def unfit(ready: Ready, now: NodePlan, content: Content) -> str:
    """Return why a prepared node cannot run with the peers of another plan; "" if it can."""
    made = renewed(ready.plan, now, content)
    return " ".join(disagreements(made)) or sums_fault(made, ready.learner)


def _inputs(plan: NodePlan) -> tuple[object, ...]:
    """Return all that decides a plan's learner."""
    settings = plan.settings
    return (
        settings.model,
        settings.data,
        settings.policy.name,
        asdict(settings.policy.config),
        settings.tuning,
        settings.cache,
        settings.privacy,
    )


def parts_under(
    plan: NodePlan, mesh: NodeNetwork, learner: PrivateLearner, boot: str
) -> Callable[..., Parts]:
    """Return what makes a kernel's parts of the state that it holds (core/assemble.py)."""
    context, facts = context_of(plan, mesh, learner, boot), facts_of(plan, learner)
    chosen = plan.policy
    return partial(parts_of, context, chosen.kind, chosen.config, learner.initial, facts)


def bind(store: Store, folder: DocumentFolder, plan: NodePlan, learner: Learner) -> None:
    """Tie a state directory to the settings of a plan; raise StateError if that fails."""
    store.rebind({"name": plan.name, **facts_of(plan, learner)})
    remember(plan.state, plan.name, plan.settings, learner.classes)
    folder.bound()


def complete(
    plan: NodePlan, mesh: NodeNetwork, store: Store, learner: PrivateLearner, boot: str
) -> None:
    """Complete a switch to the document in force that a crash interrupted, before the node starts.

    Raise StateError if that fails.
    """
    folder = DocumentFolder.of(plan.state, plan.peers)
    if not folder.unbound:
        return
    held = store.latest()
    if folder.anew and held is not None:
        parts = parts_under(plan, mesh, learner, boot)(held.policy, begins=True)
        store.commit(beginning_of(held, parts))
    bind(store, folder, plan, learner)
