"""Taking over the shared state of a peer that is ahead, and not on its word alone.

    want -->  state (of a round)           from the peer that is ahead
    witness (of that round) -->  vouch     from up to two others: their round, and its digest of it

The state is taken when somebody else vouches for it, and as many as for any other of that round.
Only in a mesh of two, where nobody else can be asked, is one word enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from node.core.types import Message, Tensors

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
WITNESSES: Final = 2
PAST: Final = 4
WANTS_MAX: Final = 3
DIGITS_MAX: Final = 18


def number_in(message: Message, fact: str) -> int:
    """Return a fact that is a number; -1 for anything else."""
    text = message.facts.get(fact, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS_MAX else -1


@dataclass(slots=True)
class Transfer:
    """One node's side of it. asked: whose state it waits for, "" for nobody's.

    past: digests of its own state after its last rounds. disbelieved: whose word on rounds counts
    no more, until what it says is near again.
    """

    asked: str = ""
    past: dict[int, str] = field(default_factory=dict)
    disbelieved: set[str] = field(default_factory=set)
    _offer: Message | None = None
    _waiting: set[str] = field(default_factory=set)
    _vouched: list[str] = field(default_factory=list)
    _given: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def number(message: Message) -> int:
        """Return after which round a state on offer is; -1 where that is no number."""
        return number_in(message, ADOPTED)

    @staticmethod
    def like_minded(heard: dict[str, Message], based: str, trusting: bool) -> dict[str, Message]:
        """Return those to merge whose later stage is bound to contributions of an earlier one.

        Where over half of all, this node counted, are bound to what it heard itself, the others
        are left out: one liar, whose own set no honest node shares, stops nobody. Otherwise a
        robust merge takes all, and bears with some; a trusting one takes nobody.
        """
        same = {name: one for name, one in heard.items() if one.contributors == based}
        if 2 * (1 + len(same)) > 1 + len(heard):
            return same
        return {} if trusting else heard

    def majority(self, heard: Mapping[str, Message], own: str, trusting: bool = True) -> str:
        """Return a peer that began from what most began from; "" where this node did so itself.

        own: the digest of what it began from. Of equally common ones the greater counts, for all;
        a single peer's, only where merges are trusting.
        """
        bases = {name: one.contributors for name, one in heard.items() if one.contributors}
        counts = Counter([*bases.values(), own])
        most = max(counts, key=lambda digest: (counts[digest], digest))
        if most == own or (counts[most] < 2 and not trusting):
            return ""
        return min(name for name, one in bases.items() if one == most)

    @staticmethod
    def moored(heard: Mapping[str, Message], own: str) -> bool:
        """Tell whether more than half of all began from what this node began from."""
        alike = 1 + sum(one.contributors == own for one in heard.values())
        return 2 * alike > len(heard) + 1

    def ask(self, peer: str) -> None:
        """Begin to wait for a peer's state."""
        self.asked, self._offer = peer, None
        self._waiting, self._vouched = set(), []

    def end(self) -> None:
        """Wait no more."""
        self.ask("")

    def offered(self, message: Message, witnesses: Iterable[str]) -> list[str]:
        """Note the state that was asked for; return who is to vouch for it."""
        chosen = list(witnesses)[:WITNESSES]
        self._offer, self._waiting, self._vouched = message, set(chosen), []
        return chosen

    def vouched(self, message: Message) -> None:
        """Note what a witness says."""
        offer = self._offer
        if offer is None or message.sender not in self._waiting:
            return
        if number_in(message, OF) == number_in(offer, ADOPTED):
            self._waiting.discard(message.sender)
            self._vouched.append(message.facts.get(DIGEST, ""))

    def lost(self, peer: str) -> None:
        """Note that a witness says nothing more."""
        self._waiting.discard(peer)

    @property
    def offer(self) -> Message | None:
        """The state on offer, once all witnesses spoke or went."""
        return None if self._waiting else self._offer

    def doubt(self, alone: bool, mending: bool, trusting: bool = True) -> str:
        """Say why the state on offer is not to be taken; "" where it is.

        alone: nobody else was ever met who could vouch for it. mending: this node is not
        behind but drifted from the others; where no two of them agree, all take the same one's, if
        their merges are trusting anyway: a liar who tells each something else makes all differ.
        """
        offer = self._offer
        assert offer is not None, "a state is on offer"
        own = offer.tensors.digest
        known = Counter(digest for digest in self._vouched if digest)
        backing = 1 + known.pop(own, 0)
        if any(count > backing for count in known.values()):
            return "others hold another state of that round"
        if mending and trusting and max(known.values(), default=0) <= 1:
            return ""
        return "nobody else vouches for it" if backing == 1 and not alone else ""

    # For others -----------------------------------------------------------------------------------

    def adopted(self, number: int, packed: Tensors) -> None:
        """Remember what this node's own state was after a round."""
        self.past = {at: one for at, one in self.past.items() if number - PAST < at < number}
        self.past[number] = packed.digest
        self._given.clear()

    def vouch(self, question: Message, own_round: int) -> dict[str, str]:
        """Return the facts that answer a witness's question."""
        asked = number_in(question, OF)
        return {OF: str(asked), ADOPTED: str(own_round), DIGEST: self.past.get(asked, "")}

    def may_give(self, peer: str) -> bool:
        """Count a wish for our state; tell whether it is one of few between two rounds."""
        self._given[peer] += 1
        return self._given[peer] <= WANTS_MAX
