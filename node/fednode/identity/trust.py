"""Trust: which key may use which name, by peers.yaml, leases of the mesh key and revocations.

A name belongs to one id: the id that peers.yaml gives it, or the id in a lease that the mesh key or
a sponsor signed (fednode.core.names has the rule for several leases). News of members is believed
only within this rule: hearsay brings nobody into the mesh, and only a member itself can change its
address. If others tell the address of a member with a lease, that address only says where to greet
the member first (fednode.core.members.table).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fednode.core.names import Claim, Names
from fednode.core.types import Update
from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import CertificateFacts, judged
from fednode.identity.identity import ELSEWHERE
from fednode.identity.lease import Statement, armour, disarm
from fednode.identity.seen import Seen
from fednode.storage.files import put
from fednode.transports.refusing import at, packed

CLOCK: Final = (
    "its certificate expired",
    "its certificate is not valid yet",
    "its lease is from the future",
)
"""How the reasons begin that a wrong clock may be the cause of."""
LOG: Final = logging.getLogger("fednode")


class Believes(Protocol):
    """The checks that a host makes before it takes a message and the news in it."""

    def name_of(self, id: str) -> str:
        """Return the name that an id has here; "" if it has none."""
        ...

    def id_of(self, name: str) -> str:
        """Return the id that a name has here; "" if it has none, or a revoked id."""
        ...

    def refusal(self, caller: str, sender: str) -> str:
        """Return why a caller may not send as `sender`; "" if it may."""
        ...

    def believed(self, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news that `sender` may tell, without the parts that it may not."""
        ...

    def take_revocation(self, proof: bytes) -> Update:
        """Store the operator's revocation, return it as news; raise IdentityError if invalid."""
        ...

    def is_revoked(self, id: str) -> bool:
        """Tell whether a key was revoked."""
        ...

    def admits(self, id: str, own: str = "") -> str:
        """Return why a key does not belong to this mesh now; "" if it does.

        own: the key of the node that asks, which needs no lease to speak with itself.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Trust:
    """Trust by keys; see the file's header.

    listed: ids by name from peers.yaml; "" if a lease has to give the id.
    clock: seconds since the epoch, used only for the validity of leases and certificates. own: the
    id of the node itself, whose operator's commands need neither a lease nor a right clock. heard:
    is called after a key was revoked that was not before. `keep_in` makes revocations and
    successions survive the process, and `remember_in` leases.
    """

    mesh: str
    listed: Mapping[str, str]
    mesh_key: Ed25519PublicKey | None = None
    clock: Callable[[], float] = time.time
    heard: Callable[[], object] = lambda: None
    own: str = ""
    _names: Names = field(default_factory=Names)
    _revoked: dict[str, bytes] = field(default_factory=dict)  # the mesh key's proof, by id
    _withdrawn: dict[str, bytes] = field(default_factory=dict)  # a sponsor's proof, by id
    _heirs: dict[str, Statement] = field(default_factory=dict)  # the succession, by listed id
    _proofs: list[bytes] = field(default_factory=list)  # of revocations and successions, in order
    _file: Path | None = None  # where the proofs are stored
    _seen: Seen | None = None  # where leases are stored

    def keep_in(self, file: Path) -> None:
        """Load the revocations and successions in a file, and store later ones there.

        Raise StateError if the file is damaged.
        """
        try:
            lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
            for line in lines:
                self._take_back(disarm(line))
        except (OSError, UnicodeDecodeError, IdentityError) as fault:
            raise StateError(
                f"{file} is damaged ({fault}), so which keys were revoked is not known: restore it "
                "from a backup, or delete it and put the revocations under `revoked` in peers.yaml."
            ) from fault
        self._file = file

    def recall(self, file: Path) -> None:
        """Load the leases in a file, which count while they hold, so that their names have ids.

        No clock is asked here: a lease that does not hold yet counts once the clock is set right.
        """
        for proof in Seen(file).proofs():
            with contextlib.suppress(IdentityError):
                statement = leases.peek(proof)
                self._take(proof, statement.id, statement.issued)

    def remember_in(self, file: Path) -> None:
        """Load the leases in a file, and store later ones there."""
        self.recall(file)
        self._seen = Seen(file)

    def _is_kept(self, proof: bytes, moment: float) -> bool:
        """Tell whether a stored lease stays in the file at a time that a new lease proves.

        It stays if it is the newest of its name and sponsor, and ended less than a year before.
        """
        try:
            held = leases.peek(proof)
        except IdentityError:
            return False
        return self._names.knows(_claim(held, proof)) and not leases.long_over(held, moment)

    def _take_back(self, proof: bytes) -> None:
        """Load a proof that was accepted before, without another look at the clock."""
        statement = leases.peek(proof)
        if statement.kind == "succession":
            self._inherit(proof, statement, statement.id, statement.issued)
        elif self.mesh_key is not None:
            self._end(leases.vouched(proof, self.mesh_key), proof)

    def _keep(self, proof: bytes) -> None:
        """Store a proof; if it cannot be written, it holds until the process ends."""
        if proof in self._proofs:
            return
        self._proofs.append(proof)
        if self._file is None:
            return
        try:
            put(self._file, "".join(f"{armour(held)}\n" for held in self._proofs), ELSEWHERE)
        except StateError as fault:
            LOG.warning("A revoked or succeeded key is forgotten at the next start: %s", fault)

    def judge(self, certificate: bytes, who: str = "") -> tuple[str, str]:
        """Return the id of a certificate in DER, and why it is refused; each "" if there is none.

        who: the name that must be reached; "" for anyone who connects.
        """
        return judged(certificate, lambda facts: self._fault(facts, who))

    def _fault(self, facts: CertificateFacts, who: str) -> str:
        now = self.clock()
        if facts.id == self.own and facts.id not in self._revoked:
            name = self.name_of(facts.id)
            return f"it is {name!r}, not {who!r}" if who and name not in {"", who} else ""
        if now > facts.expires:
            hours = (now - facts.expires) / 3600
            return f"its certificate expired {hours:.1f} hours ago: restart that node to renew it"
        if now < facts.begins:
            return "its certificate is not valid yet: check the clocks of both nodes"
        if facts.id in self._revoked:
            return "its key was revoked by the mesh key"
        fault = self._take(facts.lease, facts.id) if facts.lease else ""
        name = self.name_of(facts.id)
        if not name:
            return fault or "no such id is in peers.yaml, and it shows no lease of the mesh key"
        if who and name != who:
            return f"it is {name!r}, not {who!r}"
        return ""

    def name_of(self, id: str) -> str:
        """Return the name that an id has here; "" if it has none."""
        for name, listed in self.listed.items():
            if id and id == self._present(listed):
                return name
        return self._names.name_of(id, self.clock())

    def refusal(self, caller: str, sender: str) -> str:
        """Return why a caller may not send as `sender`; "" if it may."""
        if caller in self._revoked:
            return f"the key {caller} was revoked by the mesh key"
        name = self.name_of(caller)
        if not name:
            return f"the key {caller or 'of this caller'} belongs to nobody in this mesh"
        return "" if name == sender else f"the key of {name!r} cannot speak for {sender!r}"

    def believed(self, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news that is believed; see the file's header."""
        judged_news = (self._believe(sender, update) for update in news)
        return tuple(update for update in judged_news if update is not None)

    def _believe(self, sender: str, news: Update) -> Update | None:
        if news.state == "revoked":
            return self._revoke(news)
        if news.proof:
            self._take(news.proof, news.id)
        known = self.id_of(news.name)
        if not known:
            return None
        first_hand = news.name == sender
        fresh = news.name not in self.listed
        proof = news.proof if self.leased(news.name) else b""
        address = news.address if first_hand or fresh else ""
        return replace(news, address=address, id=known, proof=proof)

    def id_of(self, name: str) -> str:
        """Return the id that a name has here; "" if it has none, or a revoked id."""
        listed = self.listed.get(name, "")
        id_now = self._present(listed)
        if not id_now and (claim := self._names.claim(name, self.clock())):
            id_now = claim.id
        return "" if id_now in self._revoked else id_now

    def _present(self, listed: str) -> str:
        """Return the id that succeeded a listed id, or the listed id itself."""
        heir = self._heirs.get(listed)
        return heir.id if heir else listed

    def leased(self, name: str) -> bool:
        """Tell whether a name holds a lease that has not expired."""
        return self._names.claim(name, self.clock()) is not None

    def take_revocation(self, proof: bytes) -> Update:
        """Store a revocation, return it as news; raise IdentityError if it is invalid.

        If a sponsor signed it, only the leases that this sponsor gave the key end.
        """
        if self.mesh_key is None:
            raise IdentityError("peers.yaml names no mesh_key, so nobody can revoke anything")
        revocation = leases.vouched(proof, self.mesh_key)
        fault = revocation.fault(self.mesh, self.clock())
        if revocation.kind != "revocation" or fault:
            raise IdentityError(fault or f"this proof is a {revocation.kind}, not a revocation")
        if revocation.signer in self._revoked:
            raise IdentityError("the key of the sponsor that signed the revocation was revoked")
        self._end(revocation, proof)
        return Update(revocation.name, "revoked", id=revocation.id, proof=proof)

    def _end(self, revocation: Statement, proof: bytes) -> None:
        """Store a revocation that was checked, and its proof if it is new."""
        if revocation.signer:
            new = self._names.withdraw(revocation.signer, revocation.id)
            self._withdrawn |= {revocation.id: proof} if new else {}
        elif new := self._names.revoke(revocation.id, revocation.staying):
            self._revoked[revocation.id] = proof
        if new:
            self._keep(proof)
            self.heard()

    def lost(self, id: str, lease: bytes) -> bool:
        """Tell whether the mesh key, or who gave the lease, revoked a key. lease: b"" for none."""
        if id in self._revoked or not (lease and self._names.is_withdrawn(id)):
            return id in self._revoked
        statement = leases.peek(lease)
        return statement.kind == "lease" and bool(self._names.fault(_claim(statement, lease)))

    def explain(self, id: str, reason: str) -> bytes:
        """Return what a caller is told that proved its key and was refused for a reason; or b"".

        A key that was no member's learns no more than that.
        """
        if proof := self._revoked.get(id) or self._withdrawn.get(id):
            return packed("revoked", proof)
        if reason.startswith(leases.OVER):
            return packed("ended", at(self.clock()))
        if reason.startswith(CLOCK):
            return packed("clock", at(self.clock()))
        return packed("unknown") if id and not self.name_of(id) else b""

    def is_revoked(self, id: str) -> bool:
        """Tell whether a key was revoked, by the mesh key or by the sponsor that let it in."""
        return id in self._revoked or (self._names.is_withdrawn(id) and not self.name_of(id))

    def admits(self, id: str, own: str = "") -> str:
        """Return why a key does not belong to this mesh now; "" if it does. own: as in Believes."""
        if id in self._revoked:
            return f"the key {id} was revoked by the mesh key"
        if id != own and not self.name_of(id):
            return f"the key {id} belongs to nobody in this mesh, or its lease has ended"
        return ""

    def revocations(self) -> tuple[bytes, ...]:
        """Return the proofs of all revocations that this node knows."""
        return tuple(proof for proof in self._proofs if leases.peek(proof).kind == "revocation")

    def _revoke(self, news: Update) -> Update | None:
        """Return the news of a revocation; None if it is invalid or the name has a new key."""
        try:
            update = self.take_revocation(news.proof)
        except IdentityError:
            return None
        return update if update.name == news.name and not self.id_of(update.name) else None

    def _take(self, proof: bytes, id: str, moment: float | None = None) -> str:
        """Store a lease or a succession; return why it does not hold, "" if it holds.

        moment: when it has to hold to be stored; None: now.
        """
        try:
            statement = leases.peek(proof)
            if statement.kind == "succession":
                return self._inherit(proof, statement, id, self.clock())
            if self.mesh_key is None:
                return "it shows a lease, and peers.yaml names no mesh_key to check it by"
            statement = leases.vouched(proof, self.mesh_key)
        except IdentityError as fault:
            return str(fault)
        wrong = statement.fault(self.mesh, self.clock() if moment is None else moment)
        if wrong:
            return wrong
        if statement.kind != "lease" or statement.id != id:
            return "its lease is for another key"
        listed = self.listed.get(statement.name, "")
        if listed and listed != statement.id:
            return f"peers.yaml gives {statement.name!r} another id than its lease"
        new = not self._names.knows(claim := _claim(statement, proof))
        wrong = self._names.take(claim, self.clock())
        if self._seen is not None and new and self._names.knows(claim):
            self._seen.add(proof, partial(self._is_kept, moment=statement.issued))
        return wrong

    def _inherit(self, proof: bytes, succession: Statement, id: str, now: float) -> str:
        """Store the succession of a listed id, signed by its old key; return why it does not hold.

        A key has one successor, and another only if the first was revoked: whoever holds the old
        key cannot name another later. After the old key is revoked, only a succession that is dated
        before the revocation counts.
        """
        listed = self.listed.get(succession.name, "")
        old = keys.read_public(succession.by)
        succession = leases.read(proof, old)
        wrong = succession.fault(self.mesh, now)
        if wrong:
            return wrong
        if succession.id != id or not listed or keys.fingerprint(keys.raw(old)) != listed:
            return (
                f"its succession is not signed by the key that peers.yaml gives {succession.name!r}"
            )
        revoked = self._revoked.get(listed)
        if revoked and succession.issued > leases.peek(revoked).issued:
            return "the key that it succeeds was revoked by the mesh key before"
        held = self._heirs.get(listed)
        if held and held.id != id and held.id not in self._revoked:
            return f"another key, {held.id}, came after the one that it succeeds"
        self._heirs[listed] = succession
        self._keep(proof)
        return ""


def _claim(lease: Statement, proof: bytes) -> Claim:
    return Claim(
        name=lease.name,
        id=lease.id,
        issued=lease.issued,
        begins=lease.issued - leases.SKEW_S,
        ends=lease.expires or math.inf,
        by=lease.signer,
        digest=leases.digest(proof),
    )
