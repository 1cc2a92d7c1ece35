"""Errands: pings that a node sends because another node does not reach the target itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fednode.core.events import Answer, Effect
from fednode.core.members.lists import ANSWER
from fednode.core.members.phases import Phase
from fednode.core.types import Message

ERRANDS_MAX: Final = 64


@dataclass(slots=True)
class Probe:
    """A ping that failed. helpers: members that may still get through."""

    helpers: set[str]
    reason: str


class Errands:
    """The errands of one node: for each target, the tokens of the nodes that wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[int]] = {}

    @property
    def full(self) -> bool:
        """Tell whether the node runs as many errands as it takes."""
        return sum(map(len, self._waiting.values())) >= ERRANDS_MAX

    def begin(self, target: str, token: int) -> bool:
        """Note who waits for a target; tell whether the target is to be pinged now."""
        waiting = self._waiting.setdefault(target, [])
        waiting.append(token)
        return len(waiting) == 1

    def end(self, peer: str, message: Message, code: Literal["ok", "silent"]) -> list[Effect]:
        """Answer those who wait, if the message to a peer was the ping of an errand."""
        if message.phase != Phase.PING or ANSWER not in message.facts:
            return []
        detail = "" if code == "ok" else f"{peer} does not answer"
        return [Answer(token, code, detail) for token in self._waiting.pop(peer, [])]
