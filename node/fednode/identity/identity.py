"""A node's own identity on disk: its key, its certificate, and its right to sign certificates."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.certificates import (
    SPONSOR,
    Authority,
    Chain,
    Credential,
    pem_of_chain,
)
from fednode.identity.roster import FOREIGN, Member, Roster, day
from fednode.storage.disk import content_if_any, content_of, keep_private, put, refuse_earlier

IDENTITY: Final = "identity"
"""Folder of a state directory."""
CERTIFICATE_FILE: Final = "node.crt"
REVOKED_FILE: Final = "revoked"
"""File of the revocations that a node knows, one per line."""
ELSEWHERE: Final = "state directory"


class NodeIdentity:
    """A node's key and certificate on disk, in the folder `identity` of its state directory.

    node.key    P-256, made once; it never leaves this machine
    node.crt    the node's certificate and its sponsor's, renewed in their last third
    revoked     revocations, as the roster stores them

    A sponsor signs its own certificate: its right to sign stands in node.crt, on the same key.

    chain: the node's certificate and its sponsor's; None without a certificate. clock: seconds
    since the epoch, used only for the ends of validity.
    """

    def __init__(self, state: Path) -> None:
        """Read the identity in a state directory; raise StateError without one that can be used."""
        refuse_earlier(state)
        if not _has_key(state):
            raise StateError(
                f"There is no key of a node in {state / IDENTITY}: give the state directory of a "
                "node of this mesh with --state, or ask for a link and run `fednode join LINK`."
            )
        self.state, self.clock = state, time.time
        self.key = keys.load_node_key(state / IDENTITY)
        self.id = keys.id_of(self.key.public_key())
        file = state / IDENTITY / CERTIFICATE_FILE
        try:
            pem = content_if_any(file)
            self._show(Chain.read(pem) if pem else None)
        except IdentityError as fault:
            raise StateError(
                f"{file} is damaged ({fault}): restore it from a backup, or ask for a new link and "
                "run `fednode join LINK`."
            ) from fault
        if self.chain and self.chain.own.id != self.id:
            raise StateError(
                f"{file} is the certificate of another key than {file.with_name(keys.KEY_FILE)}: "
                "restore both from one backup."
            )

    @classmethod
    def create(cls, state: Path) -> NodeIdentity:
        """Return the identity in a state directory; make its key if there is none."""
        refuse_earlier(state)
        if not _has_key(state):
            keys.store(state / IDENTITY / keys.KEY_FILE, ec.generate_private_key(keys.CURVE))
        return cls(state)

    @property
    def name(self) -> str:
        return self.chain.own.name if self.chain else ""

    @property
    def proof(self) -> bytes:
        """Return the certificates in the form in which members tell them; b"" without any."""
        return self.chain.pack() if self.chain else b""

    @property
    def end(self) -> float:
        """Return when the certificate ends, or its sponsor's before it; 0 without a certificate."""
        return self.chain.ends if self.chain else 0.0

    def own(self) -> Credential:
        """Return what the node shows; the same object until its certificate is renewed."""
        return self._credential

    def take_certificate(self, chain: bytes, roster: Roster) -> None:
        """Store a certificate of this node (PEM, with its sponsor's), and show it from now on.

        Only certificates are stored, whatever else the bytes hold. Raise IdentityError if the chain
        is not one of this key, and of this name if it has one, or is no later than the
        present one, which still holds.
        """
        member = roster.identify(chain)
        if not isinstance(member, Member):
            raise IdentityError(f"this certificate cannot be used: {roster.explain(chain)}")
        if member.id != self.id or self.name not in {"", member.name}:
            raise IdentityError(
                f"this certificate is for {member.name!r} with the key {member.id}; this node is "
                f"{self.name!r} with {self.id}"
            )
        new = Chain.read(chain)
        if self._holds(roster) and (new.ends < self.end or new == self.chain):
            raise IdentityError(
                f"this certificate ends on {day(new.ends)}, and the present one on {day(self.end)}"
            )
        self._store(new)

    def needs_renewal(self, roster: Roster) -> bool:
        """Tell whether the certificate is missing, in its last third, or of a revoked sponsor."""
        return not self._holds(roster) or self.chain is None or self.chain.is_late(self.clock())

    def _holds(self, roster: Roster) -> bool:
        """Tell whether there is a certificate that holds, of a sponsor that was not revoked."""
        shown = self._credential.chain
        return bool(shown) and not roster.explain(shown) and not roster.proof(shown)

    @property
    def sponsor_end(self) -> float:
        """Return when the right to sign certificates ends; 0 without one."""
        return self.chain.right_end if self.chain else 0.0

    def read_right(self) -> bool:
        """Show the certificates on disk if a command stored a later right there; tell whether."""
        stored = chain_in(self.state)
        if stored is None or stored.own.id != self.id or stored.right_end <= self.sponsor_end:
            return False
        self._show(stored)
        return True

    def sponsor(self) -> Authority | None:
        """Return the authority of this node if it may sign certificates now; else None."""
        if self.chain is None or self.clock() > self.sponsor_end:
            return None
        right = pem_of_chain(self.chain.certificates[1:])
        return Authority(f"{SPONSOR}{self.name}", self.key, right)

    def take_sponsor(self, certificate: bytes, roster: Roster) -> bool:
        """Take the right to sign certificates, which the mesh key gave; sign the node's own by it.

        Return False, and store nothing, if the node has this right already. Raise IdentityError if
        the certificate is not for this node, does not hold, or ends before the right that the node
        has: any member can send an earlier one, which stands in chains.
        """
        right = Chain.read(certificate)
        if right.own.id != self.id or not right.may_sign(roster.root):
            raise IdentityError(f"this certificate cannot be used: {FOREIGN}")
        if right.ends < self.sponsor_end:
            raise IdentityError(
                f"this sponsor's certificate ends on {day(right.ends)}, and the present one on "
                f"{day(self.sponsor_end)}"
            )
        if self.chain and right.own == self.chain.sponsor:
            return False
        authority = Authority(f"{SPONSOR}{right.own.name}", self.key, right.pem)
        self.take_certificate(authority.node(right.own.name, self.key.public_key()), roster)
        return True

    def _store(self, chain: Chain) -> None:
        put(self.state / IDENTITY / CERTIFICATE_FILE, chain.pem.decode(), ELSEWHERE)
        self._show(chain)

    def _show(self, chain: Chain | None) -> None:
        self.chain = chain
        self._credential = Credential(keys.pem_of(self.key), chain.pem if chain else b"")


def keep_identity_private(state: Path) -> None:
    """Keep other users out of a state directory and its keys, as far as these are there.

    Raise StateError if others may have written there. The folder of the keys comes first, because
    what is done for the state directory closes it.
    """
    for folder in (state / IDENTITY, state):
        if folder.exists():
            keep_private(folder)


def chain_in(state: Path) -> Chain | None:
    """Return the certificates in a state directory; None if there are none to read."""
    with contextlib.suppress(StateError, IdentityError):
        return Chain.read(content_of(state / IDENTITY / CERTIFICATE_FILE))
    return None


def _has_key(state: Path) -> bool:
    """Tell whether there is a key in a state directory; raise StateError if it cannot be read."""
    return content_if_any(state / IDENTITY / keys.KEY_FILE) is not None
