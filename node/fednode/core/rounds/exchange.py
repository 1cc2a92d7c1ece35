"""One node's exchange of contributions with its peers: what was sent, heard, and is missing.

If nodes are drawn (draw.py), only the drawn nodes of a round contribute to it, and a round waits
only for them. A node that is not drawn hears what they say, and merges it as they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from fednode.core.events import Effect, Send, SetTimer
from fednode.core.policy import DEADLINE, RESEND, RESEND_S, NodeContext
from fednode.core.rounds.draw import drawn, span
from fednode.core.rounds.mailbox import Mailbox
from fednode.core.rounds.stragglers import Stragglers
from fednode.core.types import Message

AGAIN = "again"
"""Phase of a request to repeat what was said since a round."""
AGAINS_MAX: Final = 1
"""So often in a round a node repeats itself to a peer that asks; a correct peer asks once."""
UPS_MAX: Final = 3
"""So often in a round a node repeats itself to a peer that comes back."""


class Exchange:
    """The peers of a node, and its messages of the present round and of the rounds beside it.

    participants: how many nodes contribute to a round; 0: all. live: the peers that are live.
    known: all other members, live or not.
    """

    def __init__(self, context: NodeContext, stragglers: Stragglers, participants: int) -> None:
        self.context = context
        self.stragglers = stragglers
        self.participants = participants
        self.live = set[str]()
        self.known = set(context.peers)
        self.mail = Mailbox()
        self._newborn = True  # what was said to an earlier life of this node is lost to it
        self._reminded = set[str]()
        self._repeated = Counter[tuple[str, str]]()  # in this round, by peer
        self._draw = 0, frozenset[str]()  # a round, and the nodes drawn for it

    def begin(self, number: int) -> None:
        """Begin a round: draw who contributes, and forget older messages."""
        self._reminded = set()
        self._repeated.clear()
        self._draw = number, self._drawn(number)
        self.mail.span = span(1 + len(self.known), self.participants)
        self.mail.begin(number)

    def _drawn(self, number: int) -> frozenset[str]:
        members = self.known | {self.context.name}
        return drawn(self.context.seed, number, members, self.participants)

    def takes_part(self, name: str, number: int) -> bool:
        """Tell whether a node contributes to a round."""
        if not self.participants:
            return True
        of, names = self._draw
        return name in (names if of == number else self._drawn(number))

    @property
    def takes_part_now(self) -> bool:
        """Tell whether this node contributes to the round under way."""
        return self.takes_part(self.context.name, self._draw[0])

    # Peers ----------------------------------------------------------------------------------------

    def up(self, peer: str) -> list[Effect]:
        """Note that a peer is live; send it what it may have missed and be waiting for.

        A peer that comes and goes within a round gets that a few times only.
        """
        self.live.add(peer)
        self.known.add(peer)
        return self._repeat(peer, "up", UPS_MAX, self.mail.round_of(peer))

    def down(self, peer: str) -> None:
        """Note that a peer is not live any more."""
        self.live.discard(peer)
        self.mail.drop(peer)

    # Out ------------------------------------------------------------------------------------------

    def open(self, number: int, stage: str, own: Message | None) -> list[Effect]:
        """Open the exchange of a stage: send the node's own contribution to all live peers.

        own: None if the node does not contribute. A node that has just started asks the silent
        peers when its first timer ends.
        """
        live = sorted(self.live) if own else []
        sent = [Send(peer, own) for peer in live if own]
        if own:
            self.mail.say(own, live)
        asks = [SetTimer(RESEND, RESEND_S)] if self._newborn else []
        deadline = SetTimer(DEADLINE, self.context.rounds.deadline_s)
        return [*sent, *asks, deadline, *self._remind_all(number, stage)]

    def repeat(self, peer: str, since: int) -> list[Effect]:
        """Send a peer that asks for it this node's own messages since a round, once a round."""
        return self._repeat(peer, AGAIN, AGAINS_MAX, since)

    def _repeat(self, peer: str, why: str, most: int, since: int) -> list[Effect]:
        messages = self.mail.again(peer, since) if self._repeated[peer, why] < most else []
        self._repeated[peer, why] += bool(messages)
        return [Send(peer, message) for message in messages]

    def resend(self) -> list[Effect]:
        """Send again what got lost on its way to peers that are live."""
        return [Send(peer, message) for peer, message in self.mail.resend()]

    def delivered(self, peer: str, message: Message) -> None:
        """Note that a peer has a contribution, or will never take it."""
        self.mail.settle(peer, message)

    def lost(self, peer: str, message: Message) -> list[Effect]:
        """Note that a contribution did not get through; it is sent again a moment later."""
        return [SetTimer(RESEND, RESEND_S)] if self.mail.lose(peer, message) else []

    def ask_again(self, number: int, stage: str) -> list[Effect]:
        """Ask the silent, once in this life, for what they may have said before it began."""
        if not self._newborn:
            return []
        self._newborn = False
        return [
            Send(peer, self.context.message(number, AGAIN)) for peer in self._silent(number, stage)
        ]

    def _silent(self, number: int, stage: str) -> list[str]:
        """Return the live peers that contribute to a stage and were not heard in it."""
        heard = self.mail.heard(number, stage)
        return [
            peer
            for peer in sorted(self.live)
            if peer not in heard and self.takes_part(peer, number)
        ]

    # In -------------------------------------------------------------------------------------------

    def take(self, message: Message, number: int, last: str) -> bool:
        """Store a contribution received in round `number`; tell whether its sender takes part.

        A sender that was not drawn knows other members than this node. last: the last stage of a
        round. Only with this stage a peer is in time: if it sent the first stage alone, all others
        would wait for it until the deadline.
        """
        if not self.takes_part(message.sender, message.round):
            return False
        if message.round == number and message.phase == last:
            self.stragglers.kept(message.sender)
        self.mail.take(message, number)
        return True

    def remind(self, message: Message, number: int, stage: str) -> list[Effect]:
        """Ask a peer that is in the next round already for what it said in this one."""
        if self.participants:
            return self._remind_all(number, stage)
        return self._ask(number, stage, {message.sender}) if message.round > number else []

    def _remind_all(self, number: int, stage: str) -> list[Effect]:
        """Ask the drawn peers for what they said in this round, if a peer is in a later one.

        A drawn peer may say nothing in later rounds by which it could be known to be in them.
        """
        later = any(at > number for at in self.mail.newest.values())
        return self._ask(number, stage, self.live) if self.participants and later else []

    def _ask(self, number: int, stage: str, peers: Collection[str]) -> list[Effect]:
        """Ask those of the peers that are silent to repeat themselves, once a round."""
        asked = {*self._silent(number, stage)} & {*peers} - self._reminded
        self._reminded |= asked
        return [Send(peer, self.context.message(number, AGAIN)) for peer in sorted(asked)]

    def heard(self, number: int, stage: str) -> dict[str, Message]:
        """Return the contributions to a stage, by sender."""
        messages = self.mail.heard(number, stage)
        return {
            name: message for name, message in messages.items() if self.takes_part(name, number)
        }

    def ended(self, number: int, stage: str) -> dict[str, Message] | None:
        """Return the contributions to a stage that may end now; None if it waits for more.

        A node that was not drawn and has no live peer waits for the deadline. Otherwise it would
        run through its rounds at once, and find its peers in much earlier rounds.
        """
        ends = (self.takes_part_now or self.live) and not self._missing(number, stage)
        return self.heard(number, stage) if ends else None

    def give_up(self, number: int, stage: str, now: float) -> tuple[str, str, dict[str, Message]]:
        """End a stage at its deadline; return who said nothing, who took nothing, and the others.

        All missing peers count as stragglers from now on.
        """
        missing, limit = self._missing(number, stage), self.context.rounds.deadline_s
        heard = self.heard(number, stage)
        self.stragglers.missed(missing, number, now, limit)
        silent = ", ".join(peer for peer in missing if peer not in heard)
        deaf = ", ".join(peer for peer in missing if peer in heard)
        return silent, deaf, heard

    def _missing(self, number: int, stage: str) -> list[str]:
        """Return the live peers that were not heard in this stage, or did not take our message.

        Only peers that contribute to the round count. A peer that is further ahead than the rounds
        of which it stores its messages will say no more of this round. A node that was not drawn
        and heard nobody waits for stragglers, too: without a contribution it has nothing to merge.
        """
        pending, heard = self.mail.pending, self.heard(number, stage)
        most = number + self.mail.span
        near = {peer for peer in self.live if self.mail.round_of(peer) <= most}
        part = {peer for peer in near if self.takes_part(peer, number)}
        awaited = part & self.stragglers.awaited(near, number)
        if not (awaited or heard or self.takes_part_now):
            awaited = part
        return [
            peer
            for peer in sorted(awaited)
            if peer not in heard or (peer, number, stage) in pending
        ]
