"""Catch-up: a node that fell behind, or whose state drifted, takes over the state of most members.

Nobody is asked to vouch. Every contribution names the digest of the state that its sender began the
round from, and every message of the kernel that of the state after its sender's last round. So each
peer claims all the time which state it holds after which round. A node asks for a state:

    want -->  state (after a round)        from a peer that is ahead, or that holds what most hold

It takes the state over when enough members claim its digest (quorum.py). Where only some nodes are
sampled for a round, few contributions claim a state, so the node asks as many peers for theirs as
must hold it. A state after this round or a later one ends the round. A state after the round before
replaces what this round's contributions are merged into; those contributions claim it at the
latest. If most members are further ahead but claim different states, the node continues in their
round with its own. In all cases it writes a record. No round waits for a catch-up, and an attempt
lasts one deadline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from fednode.core.events import CancelTimer, Effect, Record, Send, SetTimer
from fednode.core.policy import CATCH_UP, DEADLINE
from fednode.core.rounds.exchange import Exchange
from fednode.core.rounds.method import MethodState
from fednode.core.rounds.quorum import at_least_half, quorum, reached
from fednode.core.types import EMPTY, Json, Message, Tensors

WANT: Final = "want"
STATE: Final = "state"
QUESTIONS: Final = frozenset({WANT, STATE})
ADOPTED: Final = "adopted"  # fact of STATE: after which round the state is
CLAIMS_KEPT: Final = 4  # so many claims of each peer are kept, the latest ones
PAST: Final = 16  # a node knows what it held after so many rounds
WANTS_MAX: Final = 3  # so often between two rounds a node gives its state to a peer
DIGITS_MAX: Final = 18
NEVER: Final = 10**18  # later than any round


def adopted_round(message: Message) -> int:
    """Return after which round a state is; -1 if the message does not say it."""
    text = message.facts.get(ADOPTED, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS_MAX else -1


@dataclass(frozen=True, slots=True)
class Found:
    """Where a node goes on: after which round, and with which state; None: with its own.

    giver: the peer whose state it is.
    """

    number: int
    tensors: Tensors | None = None
    giver: str = field(default="", compare=False)


class CatchUp:
    """One node's attempts to take over the state of others, and its answers to theirs.

    drifts, trusting: as in `MethodHooks`. number: the round under way. last, held: the round
    adopted last, and the state after it.
    """

    def __init__(self, peers: Exchange, *, drifts: bool, trusting: bool) -> None:
        self.context, self.peers = peers.context, peers
        self.drifts, self.trusting = drifts, trusting
        self.number = self.last = 0
        self.held = MethodState(EMPTY)
        self._found: Found | None = None
        self._past: dict[int, str] = {}  # digests of this node's state after its last rounds
        self._claims = defaultdict[str, dict[int, str]](dict)  # by peer, the latest one last
        self._asked, self._givers = set[str](), list[str]()  # who is asked now, and who is next
        self._offer: Message | None = None
        self._repairs = False  # the attempt is about a drift, and not because the node is behind
        self._resting = False  # until the deadline of an attempt has passed, no other begins
        self._attempts = 0
        self._distrusted = set[str]()  # withheld a state, or gave one that most contradict
        self._given = Counter[str]()

    def adopted(self, number: int, held: MethodState) -> None:
        self.number, self.last, self.held = number, number, held
        self._past = {at: one for at, one in self._past.items() if number - PAST < at < number}
        self._past[number] = held.digest
        self._given.clear()

    def _round_of(self, peer: str) -> int:
        return self.peers.contributed.get(peer, 0)

    def after(self) -> Found | None:
        """Return where the node goes on after the round under way or a later one, once."""
        found = self._found
        if found is None or found.number < self.number:
            return None
        self._found = None
        self._past.clear()
        return found

    def before(self) -> Tensors | None:
        """Return what to merge into in place of this node's state after the last round, once."""
        found = self._found
        if found is None or found.tensors is None or found.number != self.number - 1:
            return None
        self._found, self._past[found.number] = None, found.tensors.digest
        self.held = self.held.taking(found.tensors)
        return found.tensors

    def cancel_timers(self) -> list[Effect]:
        """Return what ends with the round that the node leaves: its timers.

        After a failed attempt the timer goes on: until it fires, the next attempt does not begin.
        """
        ended: list[Effect] = [CancelTimer(DEADLINE)]
        return ended if self._resting else [*ended, CancelTimer(CATCH_UP)]

    # Claims ---------------------------------------------------------------------------------------

    def claim(self, peer: str, number: int, digest: str) -> list[Effect]:
        """Learn which state a peer says that it holds after a round."""
        return self._weigh() if self._note(peer, number, digest) else []

    def _note(self, peer: str, number: int, digest: str) -> bool:
        """Store a claim; tell whether it is new."""
        claims = self._claims[peer]
        if not digest or claims.get(number) == digest:
            return False
        claims.pop(number, None)
        claims[number] = digest
        for old in list(claims)[:-CLAIMS_KEPT]:
            del claims[old]
        return True

    def _holders(self, number: int) -> dict[str, set[str]]:
        """Return who claims each state after a round."""
        holders = defaultdict[str, set[str]](set)
        for peer in sorted(self.peers.known):
            if digest := self._claims[peer].get(number, ""):
                holders[digest].add(peer)
        return holders

    def _needed(self, number: int = NEVER) -> int:
        """Return how many other members must hold a state before this node takes it over.

        number: after which round the state is. If that moves the node to no later round, half of
        all members are enough.
        """
        need = quorum(self.context, self.peers.known, self.peers.live)
        return min(need, at_least_half(len(self.peers.known))) if number < self.number else need

    def _reached(self) -> int:
        """Return the latest round to which at least _needed() members contributed, 0 if none."""
        return reached(map(self._round_of, self.peers.known), self._needed())

    def _fits(self, number: int) -> bool:
        """Tell whether a state is of use: not too old, and not beyond what most contributed to.

        It may be a round beyond that; where members contribute to one of `period` rounds, so many.
        """
        if number < self.number:
            return number == self.number - 1 and self.drifts
        return number <= self._reached() + self.peers.period

    def _last(self, number: int) -> int:
        """Return the last round that a catch-up may move a node to. number: its round now."""
        last = self.context.rounds.max
        return max(last, number) if last else NEVER

    # Asking ---------------------------------------------------------------------------------------

    def begin(self) -> list[Effect]:
        """Begin the round under way: ask for a state, if the node is behind or drifted."""
        for peer in self._claims.keys() - self.peers.known:
            del self._claims[peer]
        offer, found = self._offer, self._found
        if self._repairs or (offer is not None and not self._fits(adopted_round(offer))):
            self._distrusted |= self._asked  # their answers are too late
            self._end()
        if found is not None and found.number < self.number - 1:
            self._found = None
        return self.look_ahead(self.number) or self._repair()

    def look_ahead(self, ahead: int) -> list[Effect]:
        """Ask for a state if most members contributed to a later round than `ahead`."""
        furthest = self._reached()
        if furthest <= ahead or self._resting:
            return []
        return self._ask(peer for peer in self.peers.live if self._round_of(peer) >= furthest)

    def _repair(self) -> list[Effect]:
        """Ask for the state that most members hold, if this node drifted from it.

        A failed attempt to catch up does not delay this one: a node that drifted stays apart in all
        further rounds, and an attempt costs one state a round. The last round counts as soon as
        more than half of the others have claimed a state after it; until then the one before.
        """
        last = self._holders(self.number - 1)
        known = 2 * sum(map(len, last.values())) > len(self.peers.known)
        number = self.number - 1 if known else self.number - 2
        holders, own = self._holders(number), self._past.get(number, "")
        if not (self.drifts and own and holders):
            return []
        votes = Counter({digest: len(peers) for digest, peers in holders.items()})
        votes[own] += self.peers.period == 1  # a node that was not sampled has no vote
        most = max(votes, key=lambda digest: (votes[digest], digest))  # the same on all nodes
        if most == own or (votes[most] < 2 and not self.trusting):
            return []
        return self._ask(holders[most] & self.peers.live, repairs=True)

    def _ask(self, givers: Iterable[str], *, repairs: bool = False) -> list[Effect]:
        """Ask one of these peers, drawn at random, for its state; if it leaves, ask the next."""
        first, sampled = set(givers), self.peers.period > 1
        if not first or self._asked or self._offer or self._found:
            return []
        self._attempts, self._repairs = self._attempts + 1, repairs
        drawn = sorted(self.peers.live if sampled else first)
        self.context.random(self.number, f"givers {self._attempts}").shuffle(drawn)
        rank = {peer: (peer in self._distrusted, peer not in first) for peer in drawn}
        self._givers = sorted(drawn, key=rank.__getitem__)
        limit = SetTimer(CATCH_UP, self.context.rounds.deadline_s)
        count = self._needed(self.number - repairs) if sampled else 1
        return [*([] if self._resting else [limit]), *self._ask_next(count)]

    def _ask_next(self, count: int = 1) -> list[Effect]:
        asked, self._givers = self._givers[:count], self._givers[count:]
        self._asked |= set(asked)
        if asked:
            return [Send(peer, self.context.message(self.number, WANT)) for peer in asked]
        if self._asked or self._offer or self._repairs:
            return []  # if no holder has adopted that round yet, the next round asks again
        self._resting = True
        text = "no peer sent this node its prompts of the newest round; it goes on from its own"
        return [Record("round.doubted", text, "warning")]

    def _end(self) -> None:
        self._asked, self._givers, self._offer = set(), [], None

    # Questions and answers ------------------------------------------------------------------------

    def question(self, message: Message) -> list[Effect]:
        """Give this node's state to a peer that asks, or take the one that it asked for."""
        sender = message.sender
        if message.phase == STATE:
            return self._offered(message) if sender in self._asked else []
        self._given[sender] += 1
        if self._given[sender] > WANTS_MAX:
            return []
        facts = {ADOPTED: str(self.last)}
        state = self.context.message(self.number, STATE, self.held.packed(), facts)
        return [self.peers.send(sender, replace(state, dtype="float32"))]

    def _offered(self, message: Message) -> list[Effect]:
        number = adopted_round(message)
        self._asked.discard(message.sender)
        self._note(message.sender, number, message.tensors.digest)
        if not self._fits(number):
            return self._ask_next()
        self._offer = self._offer or message
        return self._weigh()

    def _weigh(self) -> list[Effect]:
        """Decide about the state on offer, as soon as enough members claim one, or all did."""
        offer = self._offer
        if offer is None:
            return []
        number, need = adopted_round(offer), self._needed(adopted_round(offer))
        holders = self._holders(number)
        if len(holders[offer.tensors.digest]) >= need:
            return [self._take(offer, "round.taken")]
        for peers in holders.values():
            others = (peers & self.peers.live) - self._distrusted - {offer.sender}
            if len(peers) >= need and others:  # most hold another: one of them is asked
                self._distrusted.add(offer.sender)
                self._end()
                return [self._doubted(offer), *self._ask(others, repairs=self._repairs)]
        claimed = {peer for peers in holders.values() for peer in peers}
        return self._unconfirmed(offer) if self.peers.live <= claimed else []

    def _unconfirmed(self, offer: Message) -> list[Effect]:
        """Decide what to do if too few members claim the state on offer."""
        number, holders = adopted_round(offer), self._holders(adopted_round(offer))
        commonest = max(len(peers) for peers in holders.values()) if holders else 0
        common = len(holders[offer.tensors.digest]) >= commonest
        if number == self.number - 1 and self.trusting and common:
            return [self._take(offer, "round.mended")]
        claims = sum(map(len, holders.values()))
        furthest = min(self._reached() - 1, self._last(self.number))
        self._end()
        self._resting = self._resting or not self._repairs
        if claims >= self._needed() and self.number < furthest != self.context.rounds.max:
            self._found = Found(furthest)
        return [self._doubted(offer)]

    def _take(self, offer: Message, kind: str) -> Record:
        """Decide to go on from the state on offer; return the record of it."""
        peer, number = offer.sender, adopted_round(offer)
        self._end()
        self._found = Found(min(number, self._last(self.number)), offer.tensors, peer)
        behind = number + 1 - self.number
        late = f"it was {behind} round{'s' * (behind != 1)} behind the others"
        why = late if behind else "its prompts differed from those of most"
        text = f"this node took over the prompts of {peer}: {why}"
        facts: dict[str, Json] = {"peer": peer, "round": number, "digest": offer.tensors.digest}
        return Record(kind, text, "warning", facts)

    def _doubted(self, offer: Message) -> Record:
        number = adopted_round(offer)
        text = (
            f"the prompts of {offer.sender} after round {number} are not taken over: fewer than "
            f"{self._needed(number)} other nodes confirm them; this node goes on from its own"
        )
        return Record("round.doubted", text, "warning")

    # Ends of attempts -----------------------------------------------------------------------------

    def time_is_up(self) -> list[Effect]:
        """End the attempt whose deadline has passed; the next one may begin."""
        effects = list[Effect]()
        if self._offer is not None:
            effects = self._unconfirmed(self._offer)
        elif self._asked and not self._repairs:  # they said that they were ahead
            self._distrusted |= self._asked
            names = self.peers.stragglers.missed(self._asked, self.number)
            text = f"{names} sent no prompts within the deadline; this node goes on from its own"
            effects = [Record("round.withheld", text, "warning")]
        self._resting = False
        self._end()
        return effects

    def gone(self, peer: str) -> list[Effect]:
        """Note that a peer is not live any more. If it was asked for its state, ask the next."""
        self._givers = [giver for giver in self._givers if giver != peer]
        return self.no_state(peer) or self._weigh()

    def no_state(self, peer: str) -> list[Effect]:
        """Ask the next peer in place of one that was asked and gives no state."""
        if peer not in self._asked:
            return []
        self._asked.discard(peer)
        return self._ask_next()
