"""The table of members: what this node knows of every other node, and how it weighs news of them.

    unknown -> alive -> suspect -> dead      left: it said goodbye      revoked: for good
    refused: it answers, but one of the two refuses      quarantined: it sent too much that is wrong

News carries the member's incarnation. Older news never replaces newer news. At equal incarnation,
dead and left outweigh suspect, and suspect outweighs alive (SWIM, section 4.2). What a node
observes itself outweighs what others tell: hearsay alone revives no member, and buries no member
that answers here.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from fednode.core.types import STANDINGS, MemberUpdate

LIVE: Final = frozenset({"alive", "suspect"})
ABSENT: Final = frozenset({"unknown", "dead", "refused"})
SHUT: Final = frozenset({"revoked", "quarantined"})
"""States set by decision; no message and no silence of the peer changes them."""
GONE: Final = frozenset({"left", "revoked"})
REVOKED: Final = frozenset({"revoked"})
MEMBERS_MAX: Final = 1024
INCARNATION_MAX: Final = 1 << 40
GREETINGS: Final = 3
"""Number of unanswered hellos after which a peer that was never heard, or refused, is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One peer as this node sees it.

    heard_at: last sign of life, on the host's clock; negative if there was none.
    spoke_at: when its last own message came. failures: sends in a row that nobody answered.
    failed_at: when the first of them ended. reason: why it is suspect, dead or refused.
    unreached: why this node cannot reach it although it lives; "" if it can.
    """

    name: str
    state: str = "unknown"
    failures: int = 0
    heard_at: float = -1.0
    spoke_at: float = -1.0
    failed_at: float = -1.0
    round: int = 0
    reason: str = ""
    unreached: str = ""
    incarnation: int = 0
    address: str = ""
    id: str = ""
    proof: bytes = b""

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def answers(self) -> bool:
        """Tell whether the peer lives, though one of both may refuse the other."""
        return self.live or self.state == "refused"

    def update(self) -> MemberUpdate | None:
        """Return the news to tell others about this peer; None if there is nothing to tell.

        A refusal is between two nodes, and a quarantine a decision of one: to all others the peer
        lives.
        """
        shown = "alive" if self.state in {"refused", "quarantined"} else self.state
        state = next((standing for standing in STANDINGS if standing == shown), None)
        if state is None:
            return None
        return MemberUpdate(self.name, state, self.incarnation, self.address, self.id, self.proof)


class Members:
    """All peers by name, sorted. changes: state changes, as (name, before, after).

    listed: the names in peers.yaml at the start. inactive: the peers that take part in no round
    now, as they said last. activity_changed: some became active or inactive, and the kernel has not
    taken it yet.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._table = {name: Member(name=name) for name in sorted(names)}
        self._names: dict[frozenset[str], tuple[str, ...]] = {}  # by states, until one changes
        self.listed = frozenset(names)
        self.changes: list[tuple[str, str, str]] = []
        self.inactive: set[str] = set()
        self.activity_changed = False

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __getitem__(self, name: str) -> Member:
        return self._table[name]

    def __len__(self) -> int:
        """Return the number of peers that were not revoked."""
        return len(self._table) - len(self._in(REVOKED))

    def view(self) -> tuple[Member, ...]:
        return tuple(self._table.values())

    def live(self) -> tuple[str, ...]:
        return self._in(LIVE)

    def active(self) -> set[str]:
        return {*self.live()} - self.inactive

    def absent(self) -> tuple[str, ...]:
        """Return the names of the peers to greet now and then, because they may be back."""
        return self._in(ABSENT)

    def remaining(self) -> frozenset[str]:
        """Return the names of all peers, live or not, except those that left or were revoked."""
        return frozenset(self._table).difference(self._in(GONE))

    def _in(self, states: frozenset[str]) -> tuple[str, ...]:
        if states not in self._names:
            names = (name for name, member in self._table.items() if member.state in states)
            self._names[states] = tuple(names)
        return self._names[states]

    def expected(self) -> list[str]:
        """Return the names of the peers that may take part, sorted.

        A listed peer that said goodbye may come back.
        """
        return sorted(self.remaining() | self.listed.difference(self._in(REVOKED)))

    # What this node sees for itself ---------------------------------------------------------------

    def heard(self, name: str, now: float, round_number: int | None = None) -> None:
        """Note that a peer spoke, in a round, or that it answered (no round).

        An answer that was under way when the peer said goodbye does not bring it back; a message
        does.
        """
        held = self._table[name]
        if held.state in SHUT or (held.state == "left" and round_number is None):
            return
        new = replace(held, state="alive", heard_at=now)
        if round_number is None:  # it answered, so this node reaches it
            self._put(replace(new, failures=0, unreached="", reason=""))
        else:
            self._put(replace(new, spoke_at=now, round=round_number, reason=held.unreached))

    def set_active(self, name: str, active: bool) -> None:
        """Note whether a peer takes part in rounds."""
        if active == (name in self.inactive):
            self.activity_changed = True
            self.inactive ^= {name}

    def failed(self, name: str, now: float, reason: str) -> None:
        """Note that a peer did not answer.

        That alone makes no peer suspect. A peer that was never heard, or only refused, counts as
        dead after GREETINGS failures. A peer that speaks between two failures lives, and this node
        cannot reach it.
        """
        held = self._table[name]
        since = held.failed_at if held.failures else now
        held = replace(held, failures=held.failures + 1, failed_at=since)
        if held.state == "alive" and held.spoke_at > since:
            held = replace(held, unreached=reason, reason=reason)
        if held.state in {"unknown", "refused"} and held.failures >= GREETINGS:
            held = replace(held, state="dead", reason=reason)
        self._put(held)

    def relayed(self, name: str, now: float, reason: str) -> None:
        """Note that a peer answered a helper, and not this node."""
        self._change(name, LIVE, state="alive", heard_at=now, unreached=reason, reason=reason)

    def busy(self, name: str, reason: str) -> None:
        """Note that a peer is there but takes nothing now: it loads, or has too much to do.

        A suspect becomes alive, because it answered. No other state changes, because round one
        waits for peers that can take part.
        """
        held = self._table[name]
        reason = held.reason if held.state == "left" else reason
        self._put(replace(held, failures=0, unreached="", reason=reason))
        self._change(name, {"suspect"}, state="alive")

    def refused(self, name: str, now: float, reason: str) -> None:
        """Note that a peer answers but one of the two nodes refuses the other."""
        states = {*LIVE, *ABSENT, *({"left"} if name in self.listed else ())}
        self._change(name, states, state="refused", failures=0, heard_at=now, reason=reason)

    def quarantine(self, name: str, reason: str) -> None:
        """Take nothing more from a peer, whatever it or others say."""
        if self._table[name].state != "revoked":
            self._put(replace(self._table[name], state="quarantined", reason=reason))

    def release(self, name: str) -> None:
        """End a peer's quarantine; its state is unknown then."""
        self._change(name, {"quarantined"}, state="unknown", failures=0, reason="")

    def suspect(self, name: str, reason: str) -> None:
        """Note that neither this node nor the helpers that it asked can reach a live peer."""
        self._change(name, {"alive"}, state="suspect", reason=reason)

    def bury(self, name: str) -> None:
        """Note that a suspect did not contradict in time, so it counts as dead."""
        self._change(name, {"suspect"}, state="dead")

    def note_goodbye(self, name: str, now: float) -> None:
        """Note that a peer said goodbye."""
        states = {*LIVE, *ABSENT, "left"}
        self._change(name, states, state="left", heard_at=now, reason="")

    def _change(self, name: str, states: Set[str], **fields: Any) -> None:
        """Change a peer if it is in one of these states."""
        if self._table[name].state in states:
            self._put(replace(self._table[name], **fields))

    # What others say ------------------------------------------------------------------------------

    def meet(self, news: MemberUpdate) -> bool:
        """Add a member that was not known; tell whether it was added.

        It is added only if the news says that it is alive or revoked, and the table has room. A
        name whose key was revoked counts as new with another key, which the host has checked.
        """
        held = self._table.get(news.name)
        if held is not None:
            if held.state == "revoked" and news.state == "alive" and news.id not in {"", held.id}:
                self._put(Member(name=news.name))
                return True
            return False
        if len(self._table) >= MEMBERS_MAX or news.state not in {"alive", "revoked"}:
            return False
        table = {**self._table, news.name: Member(name=news.name)}
        self._table = {name: table[name] for name in sorted(table)}
        self._names.clear()
        return True

    def place(self, news: MemberUpdate, sender: str) -> bool:
        """Store address, id and proof from news; tell whether the peer is reached elsewhere now.

        A member's own news gives its address. News from another member gives an address only if
        none is held. For listed peers the host drops addresses that others tell
        (fednode.identity.roster).
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
        moved = bool(new.address) and (new.address, new.id) != (held.address, held.id)
        self._table[news.name] = replace(new, failures=0, unreached="") if moved else new
        return moved

    def weigh(self, news: MemberUpdate, now: float, lately_s: float, speaks: bool = False) -> None:
        """Apply news of a known member, if it outweighs what is held.

        lately_s: a peer that was heard directly within this time is not dead on hearsay. It becomes
        suspect. speaks: it cannot be reached and speaks to this node, so no hearsay makes it a
        suspect.
        """
        held = self._table[news.name]
        if news.state == "revoked" and held.state != "revoked":
            if not held.id or news.id in {"", held.id}:  # else it has another key by now
                text, id = "its key was revoked by the mesh", news.id or held.id
                self._put(replace(held, state="revoked", reason=text, id=id, proof=news.proof))
            return
        older = news.incarnation < held.incarnation or news.incarnation > INCARNATION_MAX
        if older or held.state == "revoked":
            return
        newer = news.incarnation > held.incarnation
        held = replace(held, incarnation=news.incarnation)
        lately = held.heard_at >= 0 and now - held.heard_at <= lately_s
        if news.state == "alive":
            if newer and held.state == "suspect":
                held = replace(held, state="alive", reason="")
        elif held.live and not speaks:
            # A goodbye goes to all live members. Told by another member, it counts only as a death.
            if news.state != "suspect" and not lately:
                text = (
                    "it left, others say" if news.state == "left" else "others could not reach it"
                )
                held = replace(held, state="dead", reason=text)
            elif held.state == "alive":
                held = replace(held, state="suspect", reason="others cannot reach it")
        self._put(held)

    def _put(self, new: Member) -> None:
        before = self._table[new.name].state
        self._table[new.name] = new
        if before != new.state:
            self.changes.append((new.name, before, new.state))
            self._names.clear()
