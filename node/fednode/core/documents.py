"""The settings that a mesh's nodes must share, as signed documents that change while they run.

A founder or sponsor signs a document; nodes pass it on, and each site's operator, or a rule in the
site's own settings, accepts or refuses it. There is no vote. A site that accepted a document runs
under it from the round that the document names, and before or after that as soon as its own run is
over, or as most of the live sites that accepted it run under it. Sites that refuse go on without
the others: the gate takes a message only from a sender that runs under the same settings.

Every message of the kernel says which document its sender runs under, which one it has accepted,
and which is the newest that it knows. Between two nodes of which one has accepted what the other
runs under, membership goes on as before; only messages of rounds wait until both run under the
same one.

Of two documents the one with the higher number is newer, and at equal numbers the one with the
smaller digest. A node goes only to newer ones. So sites that accepted both of two proposals end
under the same one, whichever reached them first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from fednode.core.events import Effect, Offer, Record, Send, Switch
from fednode.core.members.phases import Phase
from fednode.core.types import Document, Message, Terms

AHEAD_MAX: Final = 1000
"""How far a document's number may be above the one in force, so that no number is the last."""
HELD_MAX: Final = 16
"""Documents that a node keeps: the newest ones."""
PAST_MAX: Final = 8
"""Documents of before of which a node keeps number and digest, so that it can name them."""
PASS_ON_S: Final = 2.0
"""Time between the first two tries to pass a document on to a peer."""
TRIES_MAX: Final = 8
"""How often that time is doubled."""
PROPOSED: Final = "settings.proposed"
ACCEPTED: Final = "settings.accepted"
REFUSED: Final = "settings.refused"
BEGUN: Final = "settings.begun"
FAILED: Final = "settings.failed"
NONE: Final = Document()
"""Settings as they stand in the files of a node, before the mesh's first document."""

Follows = Literal["", "ahead", "behind"]
"""Whether a sender runs under what this node accepted, or accepted what this node runs under."""

Standing = Literal["silent", "runs", "accepted", "undecided", "unheard", "newer"]
"""How a peer stands to a document: it has said nothing yet, runs under it, will run under it, knows
and has not accepted it, does not know it, or runs under a newer one that this node knows."""


def order(document: Document) -> tuple[int, int]:
    """Return what newer documents have more of."""
    return document.number, -int(document.digest or "0", 16)


@dataclass(frozen=True, slots=True)
class Settled:
    """What a node and its peers have settled.

    number: of the document in force, 0 for none. accepted: of the one that the node will run under,
    0 for none. standing: how each peer that has spoken stands to the one in force; empty without
    one. newer: the peers that run under newer ones, with the number of the document, and whether it
    is refused here.
    """

    number: int = 0
    accepted: int = 0
    standing: Mapping[str, Standing] = field(default_factory=dict)
    newer: Mapping[str, tuple[int, bool]] = field(default_factory=dict)


@dataclass(slots=True)
class _Tries:
    """How often a document was passed on to a peer that knows another one: both digests."""

    what: tuple[str, str]
    count: int = 0
    again_at: float = float("-inf")


@dataclass(slots=True)
class Documents:
    """The settings documents of one node, and what its peers say of theirs.

    force: the one under which the node runs. held: newer ones, by digest. past: older ones, by
    digest and without proof. accepted, refused: the digests of those that were decided on. told:
    the latest word of each peer. switching: the host makes another one the one in force.
    """

    force: Document = NONE
    held: dict[str, Document] = field(default_factory=dict)
    past: dict[str, Document] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    told: dict[str, Terms] = field(default_factory=dict)
    switching: bool = False
    _passed: dict[str, _Tries] = field(default_factory=dict)  # by peer

    @property
    def next(self) -> Document | None:
        """The newest document that this node has accepted and does not run under yet."""
        if not self.held:
            return None
        known = [one for digest, one in self.held.items() if digest in self.accepted]
        return max(known, key=order, default=None)

    @property
    def newest(self) -> Document:
        """The newest document that this node knows."""
        return max((self.force, *self.held.values()), key=order) if self.held else self.force

    @property
    def terms(self) -> Terms | None:
        """What this node says of its documents; None if it knows none."""
        newest = self.newest
        if newest is NONE:
            return None
        follows = self.next
        return Terms(self.force.digest, follows.digest if follows else "", newest.digest)

    # What comes from peers ------------------------------------------------------------------------

    def heard(self, peer: str, terms: Terms | None) -> bool:
        """Note what a peer says of its documents; tell whether it says something new."""
        said = terms or Terms()
        new = self.told.get(peer, Terms()) != said
        self.told[peer] = said
        return new

    def pass_on(self, now: float, peer: str, say: Callable[[str], Message]) -> list[Effect]:
        """Return the newest document as a message to a peer that said that it knows another.

        Each further try waits twice as long, because the peer may not believe it. say: returns a
        message of this node, of a phase.
        """
        newest, known = self.newest, self.told.get(peer, Terms()).knows
        if not newest.proof or known == newest.digest:
            self._passed.pop(peer, None)
            return []
        tried = self._passed.get(peer)
        if tried is None or tried.what != (newest.digest, known):
            tried = self._passed[peer] = _Tries((newest.digest, known))
        if now < tried.again_at:
            return []
        tried.again_at = now + PASS_ON_S * 2.0**tried.count
        tried.count = min(tried.count + 1, TRIES_MAX)
        return [Send(peer, replace(say(Phase.SETTINGS), document=newest))]

    def offered(self, document: Document) -> list[Effect]:
        """Take a checked document; return what follows if this node did not know it."""
        newer = order(document) > order(self.force)
        far = document.number > self.force.number + AHEAD_MAX
        if document.digest in self.held or not newer or far:
            return []
        self.held[document.digest] = document
        self._forget()
        if document.digest not in self.held:
            return []
        text = f"settings {document.number} are proposed ({document.digest[:12]})"
        return [Record(PROPOSED, text), Offer(document)]

    def _forget(self) -> None:
        kept = sorted(self.held.values(), key=order)[-HELD_MAX:]
        kept += [self.held[digest] for digest in self.accepted if digest in self.held]
        self.held = {one.digest: one for one in kept if order(one) > order(self.force)}
        self.accepted &= set(self.held)
        self.refused &= set(self.held)

    def _replace(self, document: Document) -> None:
        """Make a document the one in force; remember number and digest of those before it."""
        older = [one for one in (self.force, *self.held.values()) if one.digest]
        self.force = document
        found = [*self.past.values(), *(replace(one, proof=b"") for one in older)]
        found = sorted((one for one in found if order(one) < order(document)), key=order)
        self.past = {one.digest: one for one in found[-PAST_MAX:]}
        self._forget()

    # What the operator decides --------------------------------------------------------------------

    def decided(self, digest: str, accepts: bool) -> list[Effect]:
        """Note the operator's decision; it may be changed until the document is in force."""
        if digest not in self.held:
            text = f"settings {digest[:12]} are not known here, or older than those in force"
            return [Record(FAILED, text, "warning")]
        (self.accepted if accepts else self.refused).add(digest)
        (self.refused if accepts else self.accepted).discard(digest)
        document = self.held[digest]
        if accepts:
            text = f"settings {document.number} are accepted, from round {document.start} on"
            return [Record(ACCEPTED, text)]
        text = f"settings {document.number} are refused: this node goes on under its own"
        return [Record(REFUSED, text, "warning", {"settings": document.number})]

    # When they begin ------------------------------------------------------------------------------

    def due(self, number: int, over: bool, live: Collection[str]) -> Document | None:
        """Return the document to run under from now on; None to go on as before.

        number: the next round. over: the node's run is over. live: the peers that live.
        """
        document = self.next
        if document is None or self.switching:
            return None
        return document if over or number >= document.start or self._most(document, live) else None

    def _most(self, document: Document, live: Collection[str]) -> bool:
        """Tell whether more than half of the live peers that accepted it run under it."""
        digest = document.digest
        begun = sum(self.told[peer].force == digest for peer in live if peer in self.told)
        return 2 * begun > len(self.following(document, live))

    def following(self, document: Document, live: Iterable[str]) -> frozenset[str]:
        """Return the live peers that run under a document, or will."""
        said = {peer: self.told[peer] for peer in live if peer in self.told}
        return frozenset(
            peer
            for peer, terms in said.items()
            if document.digest in {terms.force, terms.accepts} - {""}
        )

    def switch(self, document: Document) -> list[Effect]:
        """Return the effect that makes a document the one in force."""
        self.switching = True
        return [Switch(document)]

    def begun(self, digest: str, number: int) -> list[Effect]:
        """Note that a document is in force, from round `number` on."""
        self.switching = False
        self._replace(self.held.get(digest, self.force))
        text = f"settings {self.force.number} are in force from round {number} on"
        return [Record(BEGUN, text)]

    def failed(self, digest: str, reason: str) -> list[Effect]:
        """Note that the node cannot run under a document, which counts as refused."""
        self.switching = False
        self.accepted.discard(digest)
        self.refused.add(digest)
        number = self.held[digest].number if digest in self.held else 0
        text = f"this node cannot run under settings {number}: {reason}"
        return [Record(FAILED, text, "error", {"settings": number})]

    # The gate -------------------------------------------------------------------------------------

    def follows(self, peer: str) -> Follows:
        """Tell whether a peer and this node are about to run under the same document."""
        said, accepted = self.told.get(peer, Terms()), self.next
        if accepted is not None and said.force == accepted.digest:
            return "ahead"
        return "behind" if said.accepts and said.accepts == self.force.digest else ""

    def apart(self, peer: str, own: str) -> str:
        """Return under which documents a peer and this node run, as words; "" if it is the same.

        "" also before the peer has said anything. own: this node's name, because the peer is told
        the same words.
        """
        if peer not in self.told or self.told[peer].force == self.force.digest:
            return ""
        said = self.told[peer].force
        theirs = f"settings that {own!r} does not know"
        known = self.held.get(said) or self.past.get(said)
        if not said or known:
            theirs = _named(known or NONE)
        return f"{peer!r} runs under {theirs}, and {own!r} under {_named(self.force)}"

    def standing(self, peer: str, document: Document) -> Standing:
        """Return how a peer stands to a document, by its latest word."""
        said = self.told.get(peer)
        if said is None:
            return "silent"
        if document.digest in {said.force, said.accepts}:
            return "runs" if document.digest == said.force else "accepted"
        runs, knows = self.held.get(said.force, NONE), self.held.get(said.knows, NONE)
        if order(runs) > order(document):
            return "newer"
        heard = said.knows == document.digest or order(knows) > order(document)
        return "undecided" if heard else "unheard"

    def settled(self, peers: Iterable[str]) -> Settled:
        """Return what this node and these peers have settled."""
        ran = {peer: self.told[peer].force for peer in peers if peer in self.told}
        follows = self.next
        return Settled(
            self.force.number,
            follows.number if follows else 0,
            {peer: self.standing(peer, self.force) for peer in ran} if self.force.digest else {},
            {
                peer: (self.held[digest].number, digest in self.refused)
                for peer, digest in ran.items()
                if digest in self.held and digest not in self.accepted
            },
        )


def _named(document: Document) -> str:
    return f"settings {document.number}" if document.digest else "the settings of its own files"
