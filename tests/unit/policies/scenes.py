"""Node "a" among peers with ZeroDFL: start it, tune it, hear others, look at what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fednode.core.events import (
    Adopt,
    Adopted,
    Effect,
    PeerUp,
    Received,
    RoundDue,
    Send,
    Tune,
    Tuned,
)
from fednode.core.rounds.gossip import Gossip
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import Message, Report, Snapshot, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame

OWN = Tensors({"context": np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])})
CARRY = Tensors({"momentum": [1.0]})
PEERS = ("b", "c", "d", "e")


def node(
    peers: Sequence[str] = PEERS,
    mode: Barrier = "async",
    most: int = 9,
    **set_: Any,
) -> Gossip:
    """Return node "a" at round 0; all its peers answer."""
    rounds = RoundSettings(mode=mode, max=most)
    context = frame("zerodfl", peers=tuple(peers), rounds=rounds, samples=0)
    policy = cast("Gossip", ZeroDFL.start(ZeroDFLConfig(**set_), context, OWN))
    for peer in peers:
        policy.handle(0.0, PeerUp(peer))
    return policy


def tuned(policy: Gossip, number: int = 1) -> list[Effect]:
    """Let a round begin and its tuning end; return what follows. What was tuned is OWN."""
    return _tuned(policy, number)[1]


def _tuned(policy: Gossip, number: int) -> tuple[Tensors, list[Effect]]:
    (tune,) = policy.handle(0.0, RoundDue(number))
    assert isinstance(tune, Tune)
    report = Report(tensors=OWN, metrics={"loss": 1.0}, samples=8, carry=CARRY)
    return tune.job.tensors, list(policy.handle(0.0, Tuned(tune.job, report)))


def rows(peer: str) -> Tensors:
    """Return rows that tell whose they are and which: 100 * place in the alphabet + row."""
    base = 100.0 * (ord(peer) - ord("a"))
    return Tensors({"context": [[base + row, base + row] for row in range(4)]})


def said(peer: str, phase: str = "prompts", number: int = 1, **changed: Any) -> Received:
    tensors = rows(peer) if phase == "prompts" else Tensors()
    made = Message(
        mesh="m",
        fingerprint="f",
        policy="zerodfl",
        sender=peer,
        round=number,
        phase=phase,
        tensors=tensors,
    )
    return Received(replace(made, **changed))


def sends(effects: Sequence[Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, Send)]


def adopted(policy: Gossip, effects: Sequence[Effect]) -> Snapshot:
    """Return what a round adopts, and tell the policy that it is durable."""
    (adopt,) = (one for one in effects if isinstance(one, Adopt))
    policy.handle(0.0, Adopted(adopt.snapshot))
    return adopt.snapshot


def begun(policy: Gossip, number: int = 1) -> list[str]:
    """Let a round begin; return whose its rows are, end it, and tell that it is durable."""
    start, effects = _tuned(policy, number)
    adopted(policy, effects)
    return sources(start)


def origin(snapshot: Snapshot) -> list[str]:
    """Return for each row of the next start whose it was, and which: "a1", "c3"."""
    return sources(snapshot.policy.tensors)


def sources(prompts: Tensors) -> list[str]:
    """Return for each row of prompts whose it was, and which."""
    first = prompts["context"][:, 0]
    return [f"{chr(ord('a') + int(x // 100))}{int(x % 100)}" for x in first]
