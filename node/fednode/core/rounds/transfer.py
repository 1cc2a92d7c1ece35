"""Taking over the shared state of a peer, never on the word of fewer than half of the members.

    want -->  state (of a round)           from one of the peers that are far enough, drawn
    witness (of that round) -->  vouch     from all others that can be asked: their digest of it

A state is taken when enough other members, its giver among them, hold the same (proof.py). So no
minority of the members can move a node. A witness that does not know counts against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fednode.core.types import Message, Tensors

WANT: Final = "want"
STATE: Final = "state"
WITNESS: Final = "witness"
VOUCH: Final = "vouch"
QUESTIONS: Final = frozenset({WANT, STATE, WITNESS, VOUCH})
ADOPTED: Final = "adopted"
"""Fact: after which round a state is; of whom vouches, how far it is itself."""
OF: Final = "of"
"""Fact of WITNESS and VOUCH: the round in question."""
DIGEST: Final = "digest"
"""Fact of VOUCH: the digest of the state after that round; "" where it is not known any more."""
PAST: Final = 16
WANTS_MAX: Final = 3
DIGITS_MAX: Final = 18


def number_in(message: Message, fact: str) -> int:
    """Return a fact that is a number; -1 for anything else."""
    text = message.facts.get(fact, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS_MAX else -1


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a node goes by the word of half: after which round, and with which state.

    tensors: None if no state has enough witnesses, but enough members are in that round. giver: the
    peer whose state it is.
    """

    number: int
    tensors: Tensors | None = None
    giver: str = field(default="", compare=False)


@dataclass(slots=True, kw_only=True)
class Transfer:
    """One node's side of the exchange of states.

    asked: the peer whose state it waits for, or "". mending: it asks because it drifted, not
    because it is behind. resting: until the deadline of an attempt has passed, the next one does
    not begin. attempts: so far, for the draws. destination: where the node has to go and has not
    gone yet. past: digests of this node's own state after its last rounds. broken: peers that
    withheld their state, or gave one that half of the members contradict; they are asked last.
    """

    asked: str = ""
    mending: bool = False
    resting: bool = False
    attempts: int = 0
    destination: Destination | None = None
    past: dict[int, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    _givers: list[str] = field(default_factory=list)
    _offer: Message | None = None
    _waiting: set[str] = field(default_factory=set)
    _vouched: dict[str, str] = field(default_factory=dict)
    _owed: dict[str, int] = field(default_factory=dict)
    _given: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def number(message: Message) -> int:
        """Return after which round a state on offer is; -1 where that is no number."""
        return number_in(message, ADOPTED)

    # Asking ---------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Tell whether an attempt is under way, or its result has not been used yet."""
        return bool(self.asked or self._offer or self.destination)

    @property
    def offer(self) -> Message | None:
        """The state on offer, while its witnesses are heard."""
        return self._offer

    def begin(self, givers: Iterable[str]) -> None:
        """Begin an attempt, with peers to ask in this order; the broken ones are asked last."""
        self.attempts += 1
        self._givers = sorted(givers, key=lambda giver: giver in self.broken)  # stable

    def next_giver(self) -> str:
        """Return whom to ask for its state now, "" if all were asked."""
        self._drop_offer()
        self.asked = self._givers.pop(0) if self._givers else ""
        return self.asked

    def end(self) -> None:
        """Wait for nothing more; the attempt is over."""
        self.asked, self._givers = "", []
        self._drop_offer()

    def _drop_offer(self) -> None:
        self._offer, self._waiting, self._vouched = None, set(), {}

    def offered(self, message: Message, witnesses: Iterable[str]) -> None:
        """Note the state that was asked for, and who is asked to vouch for it."""
        self.asked, self._offer, self._waiting = "", message, set(witnesses)
        self._vouched = {message.sender: message.tensors.digest}

    def vouched(self, message: Message) -> bool:
        """Note what a witness says; tell whether it was asked about the state on offer."""
        offer, peer = self._offer, message.sender
        if offer is None or peer not in self._waiting:
            return False
        if number_in(message, OF) != number_in(offer, ADOPTED):
            return False
        self._waiting.discard(peer)
        self._vouched[peer] = message.facts.get(DIGEST, "")
        return True

    def lost(self, peer: str) -> None:
        """Note that a peer can be asked nothing more."""
        self._waiting.discard(peer)
        self._givers = [giver for giver in self._givers if giver != peer]

    @property
    def heard_all(self) -> bool:
        """Tell whether no witness is left to hear."""
        return self._offer is not None and not self._waiting

    def held_by(self) -> Counter[str]:
        """Return how many, the giver among them, hold each state of the round on offer."""
        return Counter(digest for digest in self._vouched.values() if digest)

    def believed(self, need: int) -> bool:
        """Tell whether enough members hold the state on offer."""
        assert self._offer is not None, "a state is on offer"
        return self.held_by()[self._offer.tensors.digest] >= need

    def agreed_by_trust(self) -> bool:
        """Tell whether the state on offer may mend a drift where merges trust everyone anyway.

        No other state of that round is held by more. All who drifted ask for the same one's.
        """
        assert self._offer is not None, "a state is on offer"
        held = self.held_by()
        return held[self._offer.tensors.digest] >= max(held.values())

    def holders(self, need: int) -> list[str]:
        """Return who holds the state that is held by enough; nobody if none is."""
        for digest, count in self.held_by().items():
            if count >= need:
                return sorted(peer for peer, held in self._vouched.items() if held == digest)
        return []

    # For others -----------------------------------------------------------------------------------

    def adopted(self, number: int, packed: Tensors) -> None:
        """Remember what this node's own state was after a round."""
        self.past = {at: digest for at, digest in self.past.items() if number - PAST < at < number}
        self.past[number] = packed.digest
        self._given.clear()

    def vouch(self, question: Message, own_round: int) -> dict[str, str] | None:
        """Return the facts that answer a witness's question.

        None for the round under way here: the answer is owed until this node adopted that round.
        """
        asked = number_in(question, OF)
        if asked == own_round + 1:
            self._owed[question.sender] = asked
            return None
        return {OF: str(asked), ADOPTED: str(own_round), DIGEST: self.past.get(asked, "")}

    def owed(self, own_round: int) -> list[tuple[str, dict[str, str]]]:
        """Return whom to answer after a round was adopted, and with which facts."""
        owed, self._owed = sorted(self._owed.items()), {}
        return [
            (peer, {OF: str(of), ADOPTED: str(own_round), DIGEST: self.past.get(of, "")})
            for peer, of in owed
        ]

    def may_give(self, peer: str) -> bool:
        """Count a wish for our state; tell whether it is one of few between two rounds."""
        self._given[peer] += 1
        return self._given[peer] <= WANTS_MAX
