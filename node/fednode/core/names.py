"""The rule of names: which key has which name, if several leases and revocations say something.

A *claim* is what a lease says: this name belongs to this key from then until then, and this sponsor
gave the lease (nobody, if the mesh key did). The host checks signatures; this module decides:

- The newest claim on a name counts. Of two claims of one second the claim of the greater id counts,
  so all nodes that know both keep the same key.
- If the mesh revokes a key, no claim of the key holds any more. The claims that the key gave as a
  sponsor end, too, but for those that the revocation lists: a sponsor could date a claim back, so a
  date proves nothing.
- A sponsor may withdraw the claims that it gave to a key, and nobody else's.

A node keeps the newest claim of each sponsor on a name. So if a sponsor gives a name away that has
a key already, and the mesh then revokes the sponsor, the name is with its first key again. The
order in which a node hears of claims and revoked sponsors does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KNOWN_MAX: Final = 4096
"""Names with a claim."""
SPONSORS_MAX: Final = 16
"""Claims on one name, each by another sponsor."""
WITHDRAWN_MAX: Final = 1024
"""Keys whose claims one sponsor may withdraw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a lease says.

    issued: when it was given. begins, ends: when it holds, in seconds by the host's clock. by: the
    sponsor's id; "" for the mesh key. digest: of the whole lease.
    """

    name: str
    id: str
    issued: float
    begins: float
    ends: float
    by: str = ""
    digest: str = ""

    def holds(self, now: float) -> bool:
        """Tell whether the claim holds at a time."""
        return self.begins <= now <= self.ends


class Names:
    """The claims that count, and the keys and claims that do not."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, Claim]] = {}  # by name, then by sponsor
        self._revoked: dict[str, frozenset[str]] = {}  # digests that stay, by id
        self._withdrawn: dict[str, set[str]] = {}  # ids, by sponsor
        self._index: dict[str, list[str]] | None = None  # names that an id claims, by id

    def fault(self, claim: Claim) -> str:
        """Return why a claim does not hold, whatever its date; "" if it may hold."""
        if claim.id in self._revoked:
            return f"the key {claim.id} was revoked by the mesh key"
        if claim.by in self._revoked:
            if claim.digest in self._revoked[claim.by]:
                return ""
            return f"the key of its sponsor {claim.by} was revoked by the mesh key"
        if claim.id in self._withdrawn.get(claim.by, ()):
            return f"its sponsor {claim.by} revoked the lease that it gave"
        return ""

    def take(self, claim: Claim, now: float) -> str:
        """Store a claim; return why its key does not have the name now, "" if it has the name."""
        if wrong := self.fault(claim):
            return wrong
        of_name = self._claims.get(claim.name, {})
        held = of_name.get(claim.by)
        room = len(of_name) < SPONSORS_MAX if of_name else len(self._claims) < KNOWN_MAX
        newer = held is not None and (
            (held.issued, held.id) <= (claim.issued, claim.id) or bool(self.fault(held))
        )
        if held != claim and (newer or (held is None and room)):
            self._index = None
            self._claims.setdefault(claim.name, {})[claim.by] = claim
        counts = self.claim(claim.name, now)
        if counts is not None and counts.id != claim.id:
            return "a newer lease of its name is for another key"
        return ""

    def revoke(self, id: str, stay: frozenset[str] = frozenset()) -> bool:
        """Revoke a key for the mesh; tell whether that is new. stay: digests of its leases."""
        if id in self._revoked:
            return False
        self._revoked[id] = stay
        return True

    def withdraw(self, by: str, id: str) -> bool:
        """Withdraw what a sponsor gave a key; tell whether that is new, and within the limit."""
        held = self._withdrawn.setdefault(by, set())
        if id in held or len(held) >= WITHDRAWN_MAX:
            return False
        held.add(id)
        return True

    def knows(self, claim: Claim) -> bool:
        """Tell whether a claim is stored."""
        return self._claims.get(claim.name, {}).get(claim.by) == claim

    def claim(self, name: str, now: float) -> Claim | None:
        """Return the claim on a name that counts at a time; None if there is none."""
        held = self._claims.get(name, {}).values()
        good = [claim for claim in held if claim.holds(now) and not self.fault(claim)]
        return max(good, key=lambda claim: (claim.issued, claim.id), default=None)

    def name_of(self, id: str, now: float) -> str:
        """Return the name that a key has at a time; "" if it has none."""
        if self._index is None:
            self._index = {}
            for name, held in self._claims.items():
                for claimant in {claim.id for claim in held.values()}:
                    self._index.setdefault(claimant, []).append(name)
        for name in self._index.get(id, ()):
            counts = self.claim(name, now)
            if counts is not None and counts.id == id:
                return name
        return ""

    def is_revoked(self, id: str) -> bool:
        """Tell whether the mesh revoked a key."""
        return id in self._revoked

    def is_withdrawn(self, id: str) -> bool:
        """Tell whether some sponsor withdrew what it gave a key."""
        return any(id in held for held in self._withdrawn.values())
