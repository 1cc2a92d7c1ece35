"""One node's exchange of contributions with its peers: what was sent, received, and is missing.

Contributions are stored by sender, round and stage. The node also stores its own ones of the
present round and of the round before, because a peer that was away may ask for them again.

**Sampling.** If only H of K nodes contribute to a round, every node ranks the names of all members
by a hash of (run seed, name, round) and takes the first H (rendezvous hashing), without a message.
Members are all nodes that this node knows, live or not, except those that left or were revoked. If
two nodes do not know the same members yet, their samples differ by no more names than their lists
do. Only the nodes of the sample contribute to the round, and it waits only for them; the others
receive what these send, and merge it as they do. Contributions of a period of K / H rounds are
stored: the memory is the same, and a node outside the sample may be that many rounds behind.

**Retransmission.** All that is lost is mended by one timer, which starts at RESEND_S in each round
and doubles up to RESEND_MAX_S. When it fires, the node sends again what did not get through to a
live peer, and asks the silent (phase "again"): those that are in a later round, as they sent this
one's contribution; where nodes are sampled, all of them if any peer is; once after a start, all,
because what was said to the earlier life of this node is lost. A peer that comes back or asks gets
what it missed, a second time only when the timer has fired. So nobody makes a node repeat itself
faster than the timer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from fednode.core.events import Effect, Send, SetTimer
from fednode.core.policy import DEADLINE, RESEND, RESEND_S, NodeContext, draw_seed
from fednode.core.rounds.stragglers import Stragglers
from fednode.core.types import Message

AGAIN: Final = "again"  # phase of a request to repeat what was said since a round
RESEND_MAX_S: Final = 2.0
WINDOW: Final = 2  # messages of up to this many periods beyond the present round are stored
PURPOSE: Final = "participants"
PERIOD_MAX: Final = 64

Key = tuple[str, int, str]  # peer, round, stage


def participants(config: Any) -> int:
    """Return `participants` of a policy's settings; 0 if they have no such field."""
    count: int = getattr(config, "participants", 0)
    return count


def participating(config: Any, clients: int) -> int:
    return min(participants(config) or clients, clients)


def sample(seed: int, number: int, names: Collection[str], count: int) -> frozenset[str]:
    """Return the `count` names that take part in round `number`; all names if count is 0."""
    if not count or count >= len(names):
        return frozenset(names)
    ranked = sorted(names, key=lambda name: (draw_seed(seed, name, number, PURPOSE), name))
    return frozenset(ranked[:count])


def period(members: int, count: int) -> int:
    """Return over how many rounds nodes contribute as often as in one round without sampling."""
    return min(PERIOD_MAX, -(-members // count)) if 0 < count < members else 1


class Exchange:
    """The peers of a node, and the contributions of the present round and of those beside it.

    count: how many nodes contribute to a round; 0: all. live: the peers that are live. known: all
    other members, live or not. claimed: the newest round that each peer's messages named.
    contributed: the newest of those that carried arrays.
    """

    def __init__(self, context: NodeContext, stragglers: Stragglers, count: int) -> None:
        self.context = context
        self.stragglers = stragglers
        self.count = count
        self.live = set[str]()
        self.known = set(context.peers)
        self.period = 1
        self.claimed: dict[str, int] = {}
        self.contributed: dict[str, int] = {}
        self._received: dict[tuple[int, str], dict[str, Message]] = {}  # by round, stage, sender
        self._sent: dict[tuple[int, str], Message] = {}
        self._unacked: dict[Key, Message] = {}
        self._lost = set[Key]()  # unacknowledged, and not on their way
        self._sample = 0, frozenset[str]()  # a round, and the nodes that contribute to it
        self._repeated = set[str]()  # peers that something was repeated to since the timer fired
        self._delay = RESEND_S
        self._armed = False  # whether the timer runs
        self._restarted = True  # whether the silent are to be asked because the node has started

    def begin(self, number: int) -> None:
        """Begin a round: sample who contributes, and forget older messages."""
        self._delay = RESEND_S
        self._sample = number, self._sample_of(number)
        self.period = period(1 + len(self.known), self.count)
        past = range(number - self.period, number)
        self._sent = {key: message for key, message in self._sent.items() if key[0] in past}
        self._unacked = {key: one for key, one in self._unacked.items() if key[1:] in self._sent}
        self._received = {key: one for key, one in self._received.items() if key[0] >= number}

    def _sample_of(self, number: int) -> frozenset[str]:
        members = self.known | {self.context.name}
        return sample(self.context.seed, number, members, self.count)

    def participates(self, name: str, number: int) -> bool:
        if not self.count:
            return True
        of, names = self._sample
        return name in (names if of == number else self._sample_of(number))

    @property
    def participates_now(self) -> bool:
        return self.participates(self.context.name, self._sample[0])

    # Peers ----------------------------------------------------------------------------------------

    def peer_up(self, peer: str) -> list[Effect]:
        """Note that a peer is live; send it what it may have missed and be waiting for."""
        self.live.add(peer)
        self.known.add(peer)
        return self.repeat(peer, self.claimed.get(peer, 0))

    def peer_down(self, peer: str) -> None:
        """Note that a peer is not live any more: nothing is sent to it again."""
        self.live.discard(peer)
        self._unacked = {key: one for key, one in self._unacked.items() if key[0] != peer}

    # Out ------------------------------------------------------------------------------------------

    def broadcast(self, own: Message | None) -> list[Effect]:
        """Open the exchange of a stage: send the node's own contribution to all live peers.

        own: None if the node does not contribute.
        """
        sent = list[Effect]()
        if own:
            self._sent[own.round, own.phase] = own
            self._unacked |= {(peer, own.round, own.phase): own for peer in self.live}
            sent = [Send(peer, own) for peer in sorted(self.live)]
        self._armed = False  # the timer starts anew
        deadline = SetTimer(DEADLINE, self.context.rounds.deadline_s)
        return [*sent, deadline, *(self.arm() if self.live else [])]

    def send(self, peer: str, message: Message) -> Send:
        """Send a message to one peer; it is sent again while it does not get through."""
        self._unacked[peer, message.round, message.phase] = message
        return Send(peer, message)

    def arm(self) -> list[Effect]:
        """Let the timer run, if it does not run yet."""
        if self._armed:
            return []
        self._armed = True
        return [SetTimer(RESEND, self._delay)]

    def retransmit(self, number: int, stage: str) -> list[Effect]:
        """Send again what is lost, and ask the silent; the timer has fired.

        stage: that under way, "" if the node does not wait for contributions.
        """
        self._armed, self._delay = False, min(2 * self._delay, RESEND_MAX_S)
        lost, self._lost = sorted(self._lost & self._unacked.keys()), set()
        again: list[Effect] = [Send(key[0], self._unacked[key]) for key in lost]
        self._repeated = {key[0] for key in lost}
        if not stage:
            return again
        question = self.context.message(number, AGAIN)
        asked = [Send(peer, question) for peer in self._silent(number, stage)]
        self._restarted = False
        return [*again, *asked, *self.arm()]

    def _silent(self, number: int, stage: str) -> list[str]:
        """Return the live peers that sent nothing to a stage although they must have.

        A sampled peer may send nothing in later rounds by which it could be known to be in them.
        """
        later = {peer for peer, at in self.claimed.items() if at > number}
        everybody = self._restarted or (later and self.count)
        silent = self.live - self.received(number, stage).keys()
        peers = silent if everybody else silent & later
        return [peer for peer in sorted(peers) if self.participates(peer, number)]

    def repeat(self, peer: str, since: int) -> list[Effect]:
        """Send a peer again what this node said since a round, but for what is on its way."""
        missed = {
            (peer, number, stage): self._sent[number, stage]
            for number, stage in sorted(self._sent)
            if number >= since and (peer, number, stage) not in self._unacked
        }
        self._unacked |= missed
        if peer in self._repeated:  # not before the timer fires
            self._lost |= missed.keys()
            return self.arm()
        self._repeated |= {peer} if missed else set()
        return [*(Send(peer, message) for message in missed.values()), *self.arm()]

    def acked(self, peer: str, message: Message) -> None:
        """Note that a peer has a contribution, or will never take it."""
        key = peer, message.round, message.phase
        if self._unacked.get(key) == message:
            del self._unacked[key]

    def lost(self, peer: str, message: Message) -> list[Effect]:
        """Note that a contribution did not get through; it is sent again when the timer fires."""
        key = peer, message.round, message.phase
        if self._unacked.get(key) != message:
            return []
        self._lost.add(key)
        return self.arm()

    # In -------------------------------------------------------------------------------------------

    def store(self, message: Message, number: int, last: str) -> bool:
        """Store a contribution received in round `number`; tell whether its sender takes part.

        A sender outside the sample knows other members than this node. last: the last stage of a
        round. Only with this stage a peer is in time: if it sent the first stage alone, all others
        would wait for it until the deadline.
        """
        sender, of = message.sender, message.round
        if not self.participates(sender, of):
            return False
        if of == number and message.phase == last:
            self.stragglers.kept(sender)
        self.claimed[sender] = max(self.claimed.get(sender, 0), of)
        if message.tensors:
            self.contributed[sender] = max(self.contributed.get(sender, 0), of)
        if number <= of <= number + WINDOW * self.period:
            self._received.setdefault((of, message.phase), {})[sender] = message
        return True

    def received(self, number: int, stage: str) -> dict[str, Message]:
        """Return the contributions to a stage, by sender, sorted."""
        received = self._received.get((number, stage), {})
        return {
            peer: received[peer] for peer in sorted(received) if self.participates(peer, number)
        }

    def complete(self, number: int, stage: str) -> dict[str, Message] | None:
        """Return the contributions to a stage that may end now; None if it waits for more.

        A node outside the sample that has no live peer waits for the deadline. Otherwise it would
        run through its rounds at once, and find its peers in much earlier rounds.
        """
        ends = (self.participates_now or self.live) and not self._missing(number, stage)
        return self.received(number, stage) if ends else None

    def give_up(self, number: int, stage: str, now: float) -> tuple[str, str, dict[str, Message]]:
        """End a stage at its deadline; return who said nothing, who took nothing, and the others.

        All missing peers count as stragglers from now on.
        """
        missing, limit = self._missing(number, stage), self.context.rounds.deadline_s
        received = self.received(number, stage)
        self.stragglers.missed(missing, number, now, limit)
        silent = ", ".join(peer for peer in missing if peer not in received)
        deaf = ", ".join(peer for peer in missing if peer in received)
        return silent, deaf, received

    def _missing(self, number: int, stage: str) -> list[str]:
        """Return the live peers that were not heard in this stage, or did not take our message.

        Only peers that contribute to the round count. A peer that is further ahead than the rounds
        of which it stores its messages will say no more of this round. A node outside the sample
        that heard nobody waits for stragglers, too: it has nothing to merge.
        """
        received = self.received(number, stage)
        most = number + self.period
        near = {peer for peer in self.live if self.claimed.get(peer, 0) <= most}
        part = {peer for peer in near if self.participates(peer, number)}
        awaited = part & self.stragglers.awaited(near, number)
        if not (awaited or received or self.participates_now):
            awaited = part
        return [
            peer
            for peer in sorted(awaited)
            if peer not in received or (peer, number, stage) in self._unacked
        ]
