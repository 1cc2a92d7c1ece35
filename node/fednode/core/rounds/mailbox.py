"""The messages that a node sent and received in mesh-wide rounds.

Messages are stored by sender, round and stage. The node also stores its own messages of the present
round and of the round before, because a peer that was away may ask for them again. If only H of K
nodes contribute to a round, messages of K / H times as many rounds are stored: the memory is the
same, and a node that is not drawn may be that many rounds behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from fednode.core.types import Message

Key = tuple[str, int, str]
"""Peer, round, stage."""
WINDOW = 2
"""Messages of up to this many rounds, times `span`, beyond the present round are stored."""


class Mailbox:
    """The inbox of one node, and copies of the messages that it sent. span: K / H, rounded up."""

    def __init__(self) -> None:
        self.span = 1
        self.pending: dict[Key, Message] = {}  # sent and not acknowledged
        self._inbox: dict[Key, Message] = {}
        self.newest: dict[str, int] = {}  # the newest round that each peer's messages named
        self.proved: dict[str, int] = {}  # the newest of those that carried arrays
        self._said: dict[tuple[int, str], Message] = {}
        self._lost: set[Key] = set()  # pending messages that did not get through

    def begin(self, number: int) -> None:
        """Begin a round: forget older messages, but for own messages of the last `span` rounds."""
        past = range(number - self.span, number)
        self._said = {key: message for key, message in self._said.items() if key[0] in past}
        self.pending = {key: message for key, message in self.pending.items() if key[1] in past}
        self._inbox = {key: message for key, message in self._inbox.items() if key[1] >= number}

    # Out ------------------------------------------------------------------------------------------

    def say(self, message: Message, peers: Iterable[str]) -> None:
        """Store an own message and mark it as pending for these peers."""
        self._said[message.round, message.phase] = message
        for peer in peers:
            self.pending[_key(peer, message)] = message

    def again(self, peer: str, since: int) -> list[Message]:
        """Return the own messages since a round that a peer may have missed, in order.

        Messages that are still pending for the peer are left out. The returned messages become
        pending.
        """
        since_then = [self._said[key] for key in sorted(self._said) if key[0] >= since]
        unsaid = [message for message in since_then if _key(peer, message) not in self.pending]
        self.pending.update({_key(peer, message): message for message in unsaid})
        return unsaid

    def settle(self, peer: str, message: Message) -> None:
        """Mark a message as no longer pending."""
        key = _key(peer, message)
        if self.pending.get(key) == message:
            del self.pending[key]

    def lose(self, peer: str, message: Message) -> bool:
        """Mark a message as lost; tell whether it must be sent again (it is still pending)."""
        key = _key(peer, message)
        if self.pending.get(key) != message:
            return False
        self._lost.add(key)
        return True

    def resend(self) -> list[tuple[str, Message]]:
        """Return the lost messages that are still pending, each with its peer."""
        again, self._lost = sorted(self._lost & set(self.pending)), set()
        return [(key[0], self.pending[key]) for key in again]

    def drop(self, peer: str) -> None:
        """Forget the messages that are pending for a peer that has gone."""
        self.pending = {key: message for key, message in self.pending.items() if key[0] != peer}

    # In -------------------------------------------------------------------------------------------

    def take(self, message: Message, current: int) -> None:
        """Store a received message of the current round or of the next WINDOW * span rounds."""
        sender, number = message.sender, message.round
        self.newest[sender] = max(self.round_of(sender), number)
        if message.tensors:
            self.proved[sender] = max(self.proved.get(sender, 0), number)
        if current <= number <= current + WINDOW * self.span:
            self._inbox[_key(sender, message)] = message

    def heard(self, number: int, stage: str) -> dict[str, Message]:
        """Return the messages received for a round's stage, by sender, sorted."""
        messages = {
            key[0]: message for key, message in self._inbox.items() if key[1:] == (number, stage)
        }
        return dict(sorted(messages.items()))

    def round_of(self, peer: str) -> int:
        """Return the newest round that a peer's messages named; 0 if there was none."""
        return self.newest.get(peer, 0)


def _key(peer: str, message: Message) -> Key:
    return peer, message.round, message.phase
