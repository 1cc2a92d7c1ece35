"""Run the nodes of a mesh inside this process, round by round, without clock, network or disk.

For choosing hyperparameters: the policies and learners are the daemon's own, messages go through
the wire's rounding, and every node hears every other in every round, as in a sync mesh without
faults. What daemons add (time, losses, restarts) is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from node.core.events import (
    Adopt,
    Adopted,
    Delivered,
    Effect,
    Event,
    PeerUp,
    Received,
    RoundDue,
    Send,
    Tune,
    Tuned,
)
from node.core.policy import Context, Policy
from node.core.settings import RoundSettings
from node.core.types import Message
from node.learn.learner import Learner
from node.wire.codec import roundtrip

# Far more than a round of any mesh that fits here takes: a policy that never ends is a defect.
EVENTS_MAX: Final = 100_000


@dataclass(slots=True)
class _Node:
    policy: Policy
    learner: Learner
    metrics: Mapping[str, float]


def run(
    policy: type[Policy], config: Any, learners: Mapping[str, Learner], rounds: int, seed: int
) -> dict[str, Mapping[str, float]]:
    """Return each node's metrics of the last round. Nodes start from initial(seed)."""
    nodes: dict[str, _Node] = {}
    for name in sorted(learners):
        learner = learners[name]
        peers = tuple(sorted(set(learners) - {name}))
        settings = RoundSettings(mode="sync", max=rounds)
        context = Context(name, peers, "search", policy.name, "", seed, settings, learner.samples)
        nodes[name] = _Node(policy.start(config, context, learner.initial(seed)), learner, {})
    queue: deque[tuple[str, Event]] = deque(
        (name, PeerUp(peer)) for name in nodes for peer in nodes if peer != name
    )
    dtype = getattr(config, "wire_dtype", "float32")
    for number in range(1, rounds + 1):
        queue.extend((name, RoundDue(number)) for name in nodes)
        _drain(nodes, queue, dtype)
        late = [name for name, one in nodes.items() if one.policy.state().round < number]
        if late:
            raise RuntimeError(f"round {number} did not end at {', '.join(late)}")
    return {name: one.metrics for name, one in nodes.items()}


def _drain(nodes: Mapping[str, _Node], queue: deque[tuple[str, Event]], dtype: Any) -> None:
    for _ in range(EVENTS_MAX):
        if not queue:
            return
        name, event = queue.popleft()
        for effect in nodes[name].policy.handle(0.0, event):
            queue.extend(_perform(nodes, name, effect, dtype))
    raise RuntimeError(f"a round took more than {EVENTS_MAX:,} events")


def _perform(
    nodes: Mapping[str, _Node], name: str, effect: Effect, dtype: Any
) -> list[tuple[str, Event]]:
    match effect:
        case Tune(job=job):
            learner = nodes[name].learner
            report = learner.tune(job, lambda: False, lambda _: None)
            nodes[name].metrics = report.metrics
            return [(name, Tuned(job, report))]
        case Send(to=peer, message=message):
            return [
                (peer, Received(_as_received(message, dtype))),
                (name, Delivered(peer, message)),
            ]
        case Adopt(snapshot=snapshot):
            return [(name, Adopted(snapshot))]
        case _:
            return []


def _as_received(message: Message, dtype: Any) -> Message:
    return Message(
        message.mesh,
        message.fingerprint,
        message.policy,
        message.sender,
        message.round,
        message.phase,
        roundtrip(message.tensors, dtype),
        message.contributors,
        message.samples,
        message.facts,
    )
