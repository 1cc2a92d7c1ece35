"""Whom a simulated node believes: anyone, or the holders of leases, by the rule of names.

A simulated proof is a text that only its signer can have made: `Leases` keeps what was signed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from fednode.core.names import Claim, Names
from fednode.core.types import Update


class Believes(Protocol):
    """What a host decides before its kernel sees a message; names are those of hosts."""

    def connects(self, sender: str, to: str) -> bool:
        """Tell whether neither of two hosts ends a connection between them before a message."""
        ...

    def refusal(self, sender: str, to: str) -> str:
        """Return why two hosts do not speak with each other; "" if they do."""
        ...

    def believed(self, at: str, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news that a host believes; sender: "" for the operator."""
        ...

    def named(self, name: str) -> bool:
        """Tell whether there is a node of a name, as far as anybody can know."""
        ...


@dataclass(frozen=True, slots=True)
class Anyone:
    """Every host is believed to be who it says it is. hosts: the names that there are."""

    hosts: Container[str]

    def connects(self, sender: str, to: str) -> bool:
        """Return True."""
        return True

    def refusal(self, sender: str, to: str) -> str:
        """Return ""."""
        return ""

    def believed(self, at: str, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news of hosts; a member's address counts only from itself."""
        return tuple(
            update if update.name == sender or not update.address else replace(update, address="")
            for update in news
            if update.name in self.hosts
        )

    def named(self, name: str) -> bool:
        """Tell whether there is a host of a name."""
        return name in self.hosts


@dataclass(frozen=True, slots=True)
class Ended:
    """A revocation. by: the sponsor that signed it; "" for the mesh key. stay: digests."""

    name: str
    id: str
    by: str = ""
    stay: frozenset[str] = frozenset()


class Leases:
    """Each host's key and lease, and what each host knows of them (identity/trust.py in small)."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Set up. now: returns the world's time, at which leases are given."""
        self._now = now
        self.shown: dict[str, tuple[str, bytes]] = {}
        """The id of each host that has a lease, and the lease."""
        self._names: defaultdict[str, Names] = defaultdict(Names)  # by host
        self._signed: dict[bytes, Claim | Ended] = {}
        self._given = set[str]()  # names

    def connects(self, sender: str, to: str) -> bool:
        """Return True: a refused host is told so."""
        return True

    def named(self, name: str) -> bool:
        """Tell whether somebody gave a lease on a name."""
        return name in self._given

    def give(self, by: str, name: str, id: str, issued: float | None = None) -> bytes:
        """Return a lease. by: the id of the sponsor, or "" for the mesh key. issued: its date."""
        date = self._now() if issued is None else issued
        self._given.add(name)
        proof = f"lease {name} {id} {date!r} {by}".encode()
        self._signed[proof] = Claim(
            name=name,
            id=id,
            issued=date,
            begins=-math.inf,
            ends=math.inf,
            by=by,
            digest=proof.decode(),
        )
        return proof

    def end(self, by: str, name: str, id: str, stay: Iterable[bytes] = ()) -> bytes:
        """Return a revocation. stay: leases that the revoked sponsor gave and that stay."""
        proof = f"revocation {name} {id} {by} {len(self._signed)}".encode()
        digests = frozenset(lease.decode() for lease in stay)
        self._signed[proof] = Ended(name, id, by, digests)
        return proof

    def id_of(self, at: str, name: str) -> str:
        """Return the id that a name has at a host; "" if it has none."""
        claim = self._names[at].claim(name, 0.0)
        return claim.id if claim is not None else ""

    def refusal(self, sender: str, to: str) -> str:
        """Return why two hosts do not speak with each other; "" if they do."""
        return self._fault(to, sender) or self._fault(sender, to)

    def _fault(self, at: str, who: str) -> str:
        """Return why a host refuses the key and lease that another shows; "" if it does not."""
        if who not in self.shown:
            return "it shows no lease"
        _, proof = self.shown[who]
        claim = self._signed[proof]
        assert isinstance(claim, Claim)
        return self._names[at].take(claim, 0.0)

    def believed(self, at: str, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news that a host believes."""
        judged = (self._believe(at, update) for update in news)
        return tuple(update for update in judged if update is not None)

    def _believe(self, at: str, news: Update) -> Update | None:
        said, names = self._signed.get(news.proof), self._names[at]
        if news.state == "revoked":
            if not isinstance(said, Ended) or said.name != news.name:
                return None
            if said.by:
                names.withdraw(said.by, said.id)
            else:
                names.revoke(said.id, said.stay)
            return replace(news, id=said.id) if not self.id_of(at, news.name) else None
        if isinstance(said, Claim) and said.name == news.name:
            names.take(said, 0.0)
        counts = names.claim(news.name, 0.0)
        if counts is None:
            return None
        return replace(news, id=counts.id, proof=news.proof if said == counts else b"")
