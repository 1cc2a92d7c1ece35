"""The table of members: what this node knows of every other, and how news of them is weighed.

    unknown -> alive -> suspect -> dead      left: it said goodbye      revoked: for good
    refused: it answers, but one of the two refuses      quarantined: it sent too much that is wrong

News carries the member's incarnation. Older news never undoes newer; of equal age, dead and left
outweigh suspect, which outweighs alive (SWIM, section 4.2). What a node sees for itself outweighs
what others say: nobody is brought to life, or buried while it answers here, by word of mouth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from node.core.types import STANDINGS, Update

LIVE: Final = frozenset({"alive", "suspect"})
ABSENT: Final = frozenset({"unknown", "dead", "refused"})
SHUT: Final = frozenset({"revoked", "quarantined"})
"""Out by decision, which no word or silence of theirs changes."""
MEMBERS_MAX: Final = 1024
INCARNATION_MAX: Final = 1 << 40
GREETINGS: Final = 3
"""Unanswered hellos after which a listed peer that was never heard of counts as dead."""

Weighed = Literal["", "suspect", "dead", "revoked", "alive", "ask"]
"""What became of news: nothing, a new state, or a reason to ask the member itself."""


@dataclass(frozen=True, slots=True)
class Member:
    """One peer as this node sees it; heard_at is on the host's clock, negative when never.

    failures: sends in a row that nobody answered. reason: why it is suspect, dead or refused.
    """

    name: str
    state: str = "unknown"
    failures: int = 0
    heard_at: float = -1.0
    round: int = 0
    reason: str = ""
    incarnation: int = 0
    address: str = ""
    id: str = ""
    proof: bytes = b""

    @property
    def live(self) -> bool:
        """Tell whether it can be sent to: alive, or suspect and not yet given up."""
        return self.state in LIVE

    def update(self) -> Update | None:
        """Return what to tell others of it; None where there is nothing to tell."""
        state = next((one for one in STANDINGS if one == self.state), None)
        if state is None:
            return None
        return Update(self.name, state, self.incarnation, self.address, self.id, self.proof)


class Members:
    """All peers by name, sorted. changes: what became of whom, as (name, before, after)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._table = {name: Member(name) for name in sorted(names)}
        self.changes: list[tuple[str, str, str]] = []

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __getitem__(self, name: str) -> Member:
        return self._table[name]

    def __len__(self) -> int:
        return len(self._table)

    def view(self) -> tuple[Member, ...]:
        """Return all peers, sorted by name."""
        return tuple(self._table.values())

    def live(self) -> list[str]:
        """Return the names of the peers that can be sent to."""
        return [name for name, one in self._table.items() if one.live]

    def absent(self) -> list[str]:
        """Return who is to be greeted now and then: whoever may be there again."""
        return [name for name, one in self._table.items() if one.state in ABSENT]

    # What this node sees for itself ---------------------------------------------------------------

    def heard(self, name: str, now: float, round_number: int | None = None) -> None:
        """Note that a peer spoke, in a round, or that it answered (no round).

        An answer that was under way when it said goodbye does not bring it back; speaking does.
        """
        held = self._table[name]
        if held.state in SHUT or (held.state == "left" and round_number is None):
            return
        number = held.round if round_number is None else round_number
        new = replace(held, state="alive", failures=0, heard_at=now, round=number, reason="")
        self._put(new)

    def failed(self, name: str, reason: str) -> None:
        """Note that a peer did not answer; that alone makes nobody who was heard of suspect."""
        held = self._table[name]
        held = replace(held, failures=held.failures + 1)
        if held.state == "unknown" and held.failures >= GREETINGS:
            held = replace(held, state="dead", reason=reason)
        self._put(held)

    def busy(self, name: str, reason: str) -> None:
        """Note that a peer is there but takes nothing now: it loads, or has too much to do.

        That makes nobody dead, and no peer alive that was not live before: round one waits for
        peers that can take part. A suspect has answered, and is suspect no more.
        """
        held = self._table[name]
        state = "alive" if held.state == "suspect" else held.state
        reason = held.reason if held.state == "left" else reason
        self._put(replace(held, state=state, failures=0, reason=reason))

    def refused(self, name: str, now: float, reason: str) -> None:
        """Note that a peer answers but one of the two refuses the other."""
        held = self._table[name]
        if held.state not in SHUT:
            self._put(replace(held, state="refused", failures=0, heard_at=now, reason=reason))

    def quarantine(self, name: str, reason: str) -> None:
        """Take nothing more of a peer, whatever it or others say."""
        held = self._table[name]
        if held.state != "revoked":
            self._put(replace(held, state="quarantined", reason=reason))

    def release(self, name: str) -> None:
        """Let a peer begin anew."""
        held = self._table[name]
        if held.state == "quarantined":
            self._put(replace(held, state="unknown", failures=0, reason=""))

    def suspect(self, name: str, reason: str) -> None:
        """Note that a live peer cannot be reached, by this node or by those it asked."""
        held = self._table[name]
        if held.state == "alive":
            self._put(replace(held, state="suspect", reason=reason))

    def bury(self, name: str) -> None:
        """Note that a suspect did not contradict in time."""
        held = self._table[name]
        if held.state == "suspect":
            self._put(replace(held, state="dead"))

    def left(self, name: str, now: float) -> None:
        """Note that a peer said goodbye."""
        held = self._table[name]
        if held.state not in SHUT:
            self._put(replace(held, state="left", heard_at=now, reason="it left the mesh"))

    # What others say ------------------------------------------------------------------------------

    def meet(self, news: Update) -> bool:
        """Take in a member that was not known; tell whether it was new and there was room.

        A name whose key was revoked is new with another key, which the host vouches for.
        """
        held = self._table.get(news.name)
        if held is not None:
            if held.state == "revoked" and news.state == "alive" and news.id not in {"", held.id}:
                self._put(Member(news.name))
                return True
            return False
        if len(self._table) >= MEMBERS_MAX or news.state != "alive":
            return False
        table = {**self._table, news.name: Member(news.name)}
        self._table = {name: table[name] for name in sorted(table)}
        return True

    def place(self, news: Update, sender: str) -> bool:
        """Take over address, id and proof; tell whether the peer is reached another way now.

        A member's own word gives its address. The word of another member gives an address only
        where none is held. Of listed peers others are believed no address (node.identity.trust).
        """
        held = self._table[news.name]
        if news.state == "revoked":
            return False
        believed = news.address if news.name == sender or not held.address else ""
        new = replace(
            held,
            address=believed or held.address,
            id=news.id or held.id,
            proof=news.proof or held.proof,
        )
        self._table[news.name] = new
        return bool(new.address) and (new.address, new.id) != (held.address, held.id)

    def weigh(self, news: Update, now: float, lately_s: float) -> Weighed:
        """Take over news of a known member where it outweighs what is held; return what it did.

        lately_s: a peer heard directly within it is not buried on hearsay; it is asked.
        """
        held = self._table[news.name]
        if news.state == "revoked" and held.state != "revoked":
            if held.id and news.id not in {"", held.id}:
                return ""  # it has another key by now
            text, id = "its key was revoked by the mesh", news.id or held.id
            self._put(replace(held, state="revoked", reason=text, id=id, proof=news.proof))
            return "revoked"
        older = news.incarnation < held.incarnation or news.incarnation > INCARNATION_MAX
        if older or held.state == "revoked":
            return ""
        newer = news.incarnation > held.incarnation
        held = replace(held, incarnation=news.incarnation)
        if news.state == "alive":
            self._table[news.name] = held
            if newer and held.state == "suspect":
                self._put(replace(held, state="alive", reason=""))
                return "alive"
            return "ask" if held.state in ABSENT else ""
        if not held.live:
            self._table[news.name] = held
            return ""
        lately = held.heard_at >= 0 and now - held.heard_at <= lately_s
        # Goodbyes are said to everyone; on hearsay one counts as a death, and is asked about.
        if news.state == "suspect" or lately:
            doubted = held.state == "alive"
            text = "others cannot reach it" if doubted else held.reason
            self._put(replace(held, state="suspect", reason=text))
            return "suspect" if doubted else ""
        text = "it left, others say" if news.state == "left" else "others could not reach it"
        self._put(replace(held, state="dead", reason=text))
        return "dead"

    def _put(self, new: Member) -> None:
        before = self._table[new.name].state
        self._table[new.name] = new
        if before != new.state:
            self.changes.append((new.name, before, new.state))
