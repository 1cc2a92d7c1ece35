"""A node of three with ZeroDFL, for the tests of gate and kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from fednode.core.events import Effect, Record
from fednode.core.facts import fingerprint
from fednode.core.policy import NodeContext
from fednode.core.rounds.gossip import Gossip
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import EMPTY, Message, PolicyState, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame

FACTS = {"policy.name": "zerodfl", "tuning.context_length": "2"}
PROMPTS = Tensors({"context": [[1.0, 2.0], [3.0, 4.0]]})
Kind = TypeVar("Kind")


def context(policy: str = "zerodfl", **rounds: Any) -> NodeContext:
    """Return the frame of node "a" with peers "b" and "c", of which it waits for one."""
    given = {"mode": "async", "max": 5, "start": StartSettings(peers=1), **rounds}
    settings = RoundSettings(**given)
    return frame(policy, mesh="mesh", fingerprint=fingerprint(FACTS), rounds=settings)


def zerodfl(held: PolicyState | None = None, /, **rounds: Any) -> Gossip:
    config, node = ZeroDFLConfig(), context(**rounds)
    given = ZeroDFL.restore(config, node, held) if held else ZeroDFL.start(config, node, PROMPTS)
    return cast("Gossip", given)


def message(phase: str = "prompts", sender: str = "b", **changed: Any) -> Message:
    """Return a message that node "a" takes, but for what is changed."""
    tensors = PROMPTS if phase == "prompts" else EMPTY
    given: dict[str, Any] = {
        "mesh": "mesh",
        "fingerprint": fingerprint(FACTS),
        "policy": "zerodfl",
        "sender": sender,
        "round": 1,
        "phase": phase,
        "tensors": tensors,
    }
    return Message(**{**given, **changed})


def only(effects: Sequence[Effect], kind: type[Kind]) -> list[Kind]:
    return [one for one in effects if isinstance(one, kind)]


def recorded(effects: Sequence[Effect]) -> list[str]:
    return [one.kind for one in only(effects, Record)]
