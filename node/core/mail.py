"""What a node said and heard in mesh-wide rounds: who still misses what, and who is beyond us.

Messages are kept by sender, round and stage. What this node said in the round under way and in the
one before is kept too, because a peer that was away may ask for it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.core.types import Message

Key = tuple[str, int, str]
"""Peer, round, stage."""
WINDOW = 2
"""Rounds beyond the present one of which messages are kept."""


class Mail:
    """The inbox of one node, and the copies of what it sent."""

    def __init__(self) -> None:
        self.pending: dict[Key, Message] = {}  # sent and not acknowledged
        self._inbox: dict[Key, Message] = {}
        self._newest: dict[str, int] = {}
        self._said: dict[tuple[int, str], Message] = {}
        self._lost: set[Key] = set()  # pending ones that did not get through

    def begin(self, number: int, keep: bool) -> None:
        """Forget what is older than the round before; keep: whatever was heard, of any round."""
        self._said = {key: one for key, one in self._said.items() if key[0] == number - 1}
        self.pending = {key: one for key, one in self.pending.items() if key[1] == number - 1}
        if not keep:
            self._inbox = {key: one for key, one in self._inbox.items() if key[1] >= number}

    # Out ------------------------------------------------------------------------------------------

    def say(self, message: Message, peers: Iterable[str]) -> None:
        """Keep a message of ours that goes to peers."""
        self._said[message.round, message.phase] = message
        for peer in peers:
            self.pending[_key(peer, message)] = message

    def again(self, peer: str, since: int) -> list[Message]:
        """Return what a peer may miss: said since a round, in order, and not under way."""
        since_then = [self._said[key] for key in sorted(self._said) if key[0] >= since]
        found = [one for one in since_then if _key(peer, one) not in self.pending]
        self.pending.update({_key(peer, one): one for one in found})
        return found

    def said(self, number: int, stage: str) -> Message:
        """Return what this node said in a stage."""
        return self._said[number, stage]

    def settle(self, peer: str, message: Message) -> None:
        """Note that a message needs no more care."""
        key = _key(peer, message)
        if self.pending.get(key) == message:
            del self.pending[key]

    def lose(self, peer: str, message: Message) -> bool:
        """Note that a message did not get through; tell whether it is to be sent again."""
        key = _key(peer, message)
        if self.pending.get(key) != message:
            return False
        self._lost.add(key)
        return True

    def resend(self) -> list[tuple[str, Message]]:
        """Return what is to be sent again, and to whom."""
        again, self._lost = sorted(self._lost & set(self.pending)), set()
        return [(key[0], self.pending[key]) for key in again]

    def drop(self, peer: str) -> None:
        """Stop caring for what a peer has not taken: it is gone."""
        self.pending = {key: one for key, one in self.pending.items() if key[0] != peer}

    # In -------------------------------------------------------------------------------------------

    def take(self, message: Message, current: int) -> None:
        """Keep a message of this round or of the next ones."""
        self.newest_is(message)
        if current <= message.round <= current + WINDOW:
            self._inbox[_key(message.sender, message)] = message

    def take_latest(self, message: Message) -> None:
        """Keep a message in place of an older one of its sender and stage, whatever its round."""
        self.newest_is(message)
        own = (message.sender, message.phase)
        for key in [key for key in self._inbox if (key[0], key[2]) == own]:
            del self._inbox[key]
        self._inbox[_key(message.sender, message)] = message

    def newest_is(self, message: Message) -> None:
        """Note the round that a peer is in."""
        held = self._newest.get(message.sender, 0)
        self._newest[message.sender] = max(held, message.round)

    def heard(self, number: int, stage: str) -> dict[str, Message]:
        """Return the messages of a round's stage by sender, sorted."""
        found = {key[0]: one for key, one in self._inbox.items() if key[1:] == (number, stage)}
        return dict(sorted(found.items()))

    def latest(self, stage: str) -> dict[str, Message]:
        """Return the latest messages of a stage by sender, sorted, and forget them."""
        keys = [key for key in sorted(self._inbox) if key[2] == stage]
        return {key[0]: self._inbox.pop(key) for key in keys}

    def round_of(self, peer: str) -> int:
        """Return the newest round that a peer spoke of; 0 for none."""
        return self._newest.get(peer, 0)


def _key(peer: str, message: Message) -> Key:
    return peer, message.round, message.phase
