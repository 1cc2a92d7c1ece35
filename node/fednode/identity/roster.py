"""Who belongs to a mesh: members by their chains of certificates, guests by an open invitation.

TLS checks the chain when a connection begins. The roster checks it again at each call, because a
connection lasts longer than an invitation, a certificate, or the trust in a key.

- A name belongs to the key in its newest certificate; of two certificates of one second, the
  greater id counts. So all nodes that know both take the same key.
- The mesh key revokes keys. With a sponsor's key, what the sponsor signed ends. Members that called
  this node before, or were in its file of members at its start, stay, by their keys; a
  sponsor could date certificates back, so their dates prove nothing.
- Members tell each other of members. Such hearsay brings nobody into the mesh without a
  certificate, and only a member itself can change its address.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fednode.core.types import MemberUpdate
from fednode.errors import IdentityError, StateError
from fednode.identity.certificates import (
    CHAIN_BYTES_MAX,
    Certificate,
    Chain,
    host_of,
    invitation_of,
    pem_of_chain,
    read_revocation,
    root_of,
)
from fednode.storage.disk import content_if_any, put

CHAINS_KEPT: Final = 4096
NAMES_MAX: Final = 4096
"""Names with a certificate. If there are more, names that only gossip told are forgotten."""
NAMES_OF_SIGNER_MAX: Final = 1024
"""Names with a certificate of one sponsor."""
SIGNERS_MAX: Final = 16
"""Certificates of one name, each by another sponsor."""
FOREIGN: Final = "it shows no certificate of this mesh"
LOG: Final = logging.getLogger("fednode")


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the mesh."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Guest:
    """A newcomer with an invitation, which may ask for a certificate and do nothing else.

    name: the one that it is invited under. by: the node that has invited it and waits at the relay
    of this node; "" for this node itself.
    """

    name: str
    id: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class _Invitation:
    """An open invitation: its public key, a certificate to trust, and `by` as in `Guest`."""

    key: bytes
    anchor: x509.Certificate
    site: str
    by: str


class Roster:
    """The members of one mesh, as one node knows them.

    version: grows with each change of what TLS is to trust. on_revoked: is called after a key was
    revoked that was not before.
    """

    def __init__(
        self,
        mesh: str,
        mesh_key: Ed25519PublicKey,
        listed: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set up. listed: names whose addresses peers.yaml gives, so that no hearsay changes them.

        clock: seconds since the epoch, used only for the validity of certificates.
        """
        self.mesh, self.mesh_key, self.clock = mesh, mesh_key, clock
        self.root = root_of(mesh, mesh_key)
        self.version = 0
        self.on_revoked: Callable[[], object] = lambda: None
        self._listed = frozenset(listed)
        self._invited: dict[str, _Invitation] = {}  # by the anchor's name
        self._chains: dict[str, dict[str, Chain]] = {}  # by name, then by the sponsor's id
        self._sponsors: dict[str, Certificate] = {}  # the latest of each, by id
        self._names: dict[str, list[str]] | None = None  # names by id
        self._callers = set[
            tuple[str, str]
        ]()  # names with the keys that called, or were in the file
        self._revoked: dict[str, bytes] = {}
        self._file: Path | None = None
        self._read = functools.lru_cache(CHAINS_KEPT)(self._verify)

    # What TLS trusts, and who calls ---------------------------------------------------------------

    @property
    def anchors(self) -> bytes:
        """Return all certificates that TLS is to trust, in PEM."""
        return pem_of_chain([self.root, *(one.anchor for one in self._invited.values())])

    def set_invitations(self, invitations: Mapping[bytes, str], by: str = "") -> None:
        """Replace the open invitations of this node, or of a node that waits at its relay.

        invitations: the name that each one invites, by its public key (`point_of`). What is no such
        key, or of another node's invitation, is left out.
        """
        anchors = {one.key: (name, one.anchor) for name, one in self._invited.items()}
        opened = {name: one for name, one in self._invited.items() if one.by != by}
        for key, site in invitations.items():
            with contextlib.suppress(IdentityError):
                name, anchor = anchors.get(key) or invitation_of(key)
                opened.setdefault(name, _Invitation(key, anchor, site, by))
        if opened != self._invited:
            self._invited = opened
            self.version += 1
            self._read.cache_clear()

    def invitations(self) -> list[bytes]:
        """Return the public keys of this node's own open invitations."""
        return [one.key for one in self._invited.values() if not one.by]

    def identify(self, pem: bytes) -> Member | Guest | None:
        """Return whose chain of certificates (PEM) called this node; None if it may not."""
        caller = self._judge(pem)
        if isinstance(caller, Member):
            self._callers.add((caller.name, caller.id))
        return caller

    def _judge(self, pem: bytes) -> Member | Guest | None:
        chain = self._chain_in(pem)
        if chain is None or self._fault(chain):
            return None
        invitation = self._invitation_of(chain)
        if invitation is None:
            return Member(chain.own.name, chain.own.id)
        return Guest(invitation.site, chain.own.id, invitation.by)

    def explain(self, pem: bytes) -> str:
        """Return why a chain (PEM) may not call; "" if it may."""
        chain = self._chain_in(pem)
        return FOREIGN if chain is None else self._fault(chain)

    def proof(self, pem: bytes) -> bytes:
        """Return the proof that the key of a chain, or its sponsor's, was revoked; b"" for none."""
        chain = self._chain_in(pem)
        ids = () if chain is None else (chain.own.id, chain.sponsor_id)
        return next((self._revoked[id] for id in ids if id in self._revoked), b"")

    def _chain_in(self, pem: bytes) -> Chain | None:
        """Return the chain in a text if it leads to a trusted certificate; None if it does not."""
        return self._read(pem) if len(pem) <= CHAIN_BYTES_MAX else None

    def _verify(self, pem: bytes) -> Chain | None:
        try:
            chain = Chain.read(pem)
        except IdentityError:
            return None
        invitation = self._invitation_of(chain)
        return chain if chain.leads_to(invitation.anchor if invitation else self.root) else None

    def _invitation_of(self, chain: Chain) -> _Invitation | None:
        return None if chain.sponsor else self._invited.get(chain.own.signer)

    def callee(self, name: str) -> tuple[str, bytes]:
        """Return what to demand of a node that is called: a name in its certificate, and trust.

        That is the mesh's certificate (PEM). But TLS asks nobody about revocations, so once the
        mesh key has revoked a key, only the key that counts for the name will do, with the very
        certificate that this roster knows, or one of a known sponsor that was not revoked.
        """
        chain = self._chain(name) if self._revoked else None
        if chain is None:
            return host_of(name), pem_of_chain([self.root])
        signers = (one.raw for id, one in self._sponsors.items() if id not in self._revoked)
        return host_of(name, chain.own.id), pem_of_chain([chain.own.raw, *signers])

    # Which name has which key ---------------------------------------------------------------------

    def _fault(self, chain: Chain) -> str:
        """Return why a chain does not hold now; "" if it does. A member's that holds is stored."""
        now = self.clock()
        if chain.own.id in self._revoked:
            return "its key was revoked by the mesh key"
        if now > chain.ends:
            return f"its certificate ended on {day(chain.ends)}"
        if now < chain.begins:
            return f"its certificate begins on {day(chain.begins)}: check the clocks of both nodes"
        return "" if self._invitation_of(chain) else self._take(chain)

    def _take(self, chain: Chain) -> str:
        """Store a chain that is valid now; return why its key does not have its name, or ""."""
        own, sponsor = chain.own, chain.sponsor
        before = self._chains.get(own.name, {}).get(chain.sponsor_id)
        if sponsor and sponsor.id in self._revoked and (before is None or before.own.id != own.id):
            return f"the key of its sponsor {sponsor.name} was revoked by the mesh key"
        if before is None and not self._has_room(chain):
            self._forget(lambda one: self._holds(one) and self._has_called(one))
            if not self._has_room(chain):
                return "this node knows too many certificates"
        newer = before and (before.own.begins, before.own.id) < (own.begins, own.id)
        if before is None or newer or not self._holds(before):
            self._chains.setdefault(own.name, {})[chain.sponsor_id] = chain
            self._names = None
            if before and before.own.id != own.id:
                self._forget(lambda _: True)  # a sponsor may give a name to many keys
            if sponsor:
                latest = self._sponsors.get(sponsor.id, sponsor)
                self._sponsors[sponsor.id] = max(latest, sponsor, key=lambda one: one.ends)
        if self.id_of(own.name) != own.id:
            return "a newer certificate of its name is for another key"
        return ""

    def _has_room(self, chain: Chain) -> bool:
        of_signer = sum(chain.sponsor_id in chains for chains in self._chains.values())
        room = len(self._chains) < NAMES_MAX or chain.own.name in self._chains
        of_name = len(self._chains.get(chain.own.name, {}))
        return room and of_name < SIGNERS_MAX and of_signer < NAMES_OF_SIGNER_MAX

    def _has_called(self, chain: Chain) -> bool:
        return (chain.own.name, chain.own.id) in self._callers

    def _forget(self, stays: Callable[[Chain], bool]) -> None:
        """Forget all chains but those that stay, and that keys without a chain have called."""
        for name, chains in list(self._chains.items()):
            self._chains[name] = {by: one for by, one in chains.items() if stays(one)}
            if not self._chains[name]:
                del self._chains[name]
        stored = (one.own for chains in self._chains.values() for one in chains.values())
        self._callers.intersection_update((own.name, own.id) for own in stored)
        self._names = None

    def _chain(self, name: str) -> Chain | None:
        """Return the chain of a name that counts now; None if there is none."""
        valid = (chain for chain in self._chains.get(name, {}).values() if self._holds(chain))

        # A certificate of a sponsor that was revoked counts only if there is no other.
        def rank(one: Chain) -> tuple[bool, float, str]:
            return one.sponsor_id not in self._revoked, one.own.begins, one.own.id

        return max(valid, key=rank, default=None)

    def _holds(self, chain: Chain) -> bool:
        return chain.begins <= self.clock() <= chain.ends and chain.own.id not in self._revoked

    def name_of(self, id: str) -> str:
        if self._names is None:
            self._names = {}
            for name, chains in self._chains.items():
                for owner in {chain.own.id for chain in chains.values()}:
                    self._names.setdefault(owner, []).append(name)
        return next((name for name in self._names.get(id, ()) if self.id_of(name) == id), "")

    def id_of(self, name: str) -> str:
        chain = self._chain(name)
        return "" if chain is None else chain.own.id

    def sponsors(self) -> list[str]:
        """Return the names of the nodes that sign certificates, as far as certificates say so."""
        now = self.clock()
        known = [one for id, one in self._sponsors.items() if id not in self._revoked]
        return sorted({one.name for one in known if now <= one.ends})

    def check_sender(self, caller: str, sender: str) -> str:
        name = self.name_of(caller)
        if not name:
            return self._stranger(caller)
        return "" if name == sender else f"the key of {name!r} cannot speak for {sender!r}"

    def check_member(self, id: str) -> str:
        return "" if self.name_of(id) else self._stranger(id)

    def _stranger(self, id: str) -> str:
        if id in self._revoked:
            return f"the key {id} was revoked by the mesh key"
        return f"the key {id or 'of this caller'} belongs to nobody in this mesh"

    # News of members ------------------------------------------------------------------------------

    def filter_gossip(self, sender: str, news: Iterable[MemberUpdate]) -> tuple[MemberUpdate, ...]:
        """Return the news that is believed; see the file's header."""
        believed = (self._believe(sender, update) for update in news)
        return tuple(update for update in believed if update is not None)

    def _believe(self, sender: str, news: MemberUpdate) -> MemberUpdate | None:
        if news.state == "revoked":
            try:
                update = self.take_revocation(news.proof)
            except IdentityError:
                return None
            return update if update.name == news.name and not self.id_of(update.name) else None
        holder: Member | Guest | None = None
        with contextlib.suppress(IdentityError):  # most news has no certificate
            holder = self._judge(Chain.unpack(news.proof).pem)
        id = self.id_of(news.name)
        if not id:
            return None
        if not sender:  # this node's own file
            self._callers.add((news.name, id))
        proof = news.proof if holder == Member(news.name, id) else b""
        may_place = news.name == sender or news.name not in self._listed
        return replace(news, address=news.address if may_place else "", id=id, proof=proof)

    # Revocations ----------------------------------------------------------------------------------

    def take_revocation(self, proof: bytes) -> MemberUpdate:
        """Store a revocation, return it as news; raise IdentityError if it is invalid."""
        revocation = read_revocation(proof, self.mesh_key)
        if revocation.mesh != self.mesh:
            raise IdentityError(f"this revocation is for the mesh {revocation.mesh!r}")
        if revocation.id not in self._revoked:
            self._revoked[revocation.id] = proof
            self._forget(lambda one: one.sponsor_id != revocation.id or self._has_called(one))
            self._write()
            self.on_revoked()
        return MemberUpdate(revocation.name, "revoked", id=revocation.id, proof=proof)

    def learn_revocations(self, proofs: Iterable[bytes]) -> None:
        """Store revocations that others tell; leave out what the mesh key did not sign."""
        for proof in proofs:
            with contextlib.suppress(IdentityError):
                self.take_revocation(proof)

    def is_revoked(self, id: str) -> bool:
        return id in self._revoked

    def has_revoked(self, pem: bytes) -> bool:
        """Tell whether the key of a chain (PEM) of this mesh was revoked."""
        chain = self._chain_in(pem)
        return chain is not None and self.is_revoked(chain.own.id)

    def revocations(self) -> tuple[bytes, ...]:
        return tuple(self._revoked.values())

    def keep_in(self, file: Path) -> list[MemberUpdate]:
        """Load the revocations in a file, and store later ones there; return the former as news.

        Members that the roster knows before stay, also if their sponsor is revoked in the file.
        Raise StateError if the file is damaged.
        """
        try:
            lines = (content_if_any(file) or b"").decode("ascii").splitlines()
            news = [self.take_revocation(bytes.fromhex(line)) for line in lines]
        except (ValueError, IdentityError) as fault:
            raise StateError(
                f"{file} is damaged ({fault}), so which keys were revoked is not known: restore it "
                "from a backup, or delete it; the other members tell this node what they know."
            ) from fault
        self._file = file
        return [one for one in news if not self.id_of(one.name)]

    def _write(self) -> None:
        """Store the revocations; if they cannot be written, they hold until the process ends."""
        if self._file is None:
            return
        text = "".join(f"{proof.hex()}\n" for proof in self._revoked.values())
        try:
            put(self._file, text, "state directory")
        except StateError as fault:
            LOG.warning("A revoked key is forgotten at the next start: %s", fault)


def day(moment: float) -> str:
    """Return the date of a time in seconds since the epoch, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
