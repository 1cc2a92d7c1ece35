"""A node's own identity on disk: its key, its certificate, and its right to sign certificates."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.certificates import (
    Authority,
    Credential,
    Facts,
    is_late,
    pack,
    pem_of_chain,
    read_chain,
    read_facts,
    read_sponsor,
)
from fednode.identity.roster import Member, Roster, day
from fednode.storage.disk import keep_private
from fednode.storage.files import content_if_any, content_of, put

IDENTITY: Final = "identity"
"""Folder of a state directory."""
SPONSOR_FILE: Final = Path("enrolment", "sponsor.crt")
CERTIFICATE_FILE: Final = "node.crt"
REVOKED_FILE: Final = "revoked"
"""File of the revocations that a node knows, one per line."""
ELSEWHERE: Final = "state directory"


class NodeIdentity:
    """A node's key and certificate on disk, and its sponsor's certificate if it is a sponsor.

    identity/node.key       P-256, made once; it never leaves this machine
    identity/node.crt       the node's certificate and its sponsor's, renewed in their last third
    identity/revoked        revocations, as the roster stores them
    enrolment/sponsor.crt   of a node that may sign certificates, on the same key

    facts: what the node's certificate says, and its sponsor's; empty without a certificate. clock:
    seconds since the epoch, used only for the ends of validity.
    """

    def __init__(self, state: Path) -> None:
        """Read the identity in a state directory; raise StateError without one that can be used."""
        refuse_earlier_state(state)
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
            self._show(content_if_any(file) or b"")
        except IdentityError as fault:
            raise StateError(
                f"{file} is damaged ({fault}): restore it from a backup, or ask for a new link and "
                "run `fednode join LINK`."
            ) from fault
        if self.facts and self.facts[0].id != self.id:
            raise StateError(
                f"{file} is the certificate of another key than {file.with_name(keys.KEY_FILE)}: "
                "restore both from one backup."
            )

    @classmethod
    def create(cls, state: Path) -> NodeIdentity:
        """Return the identity in a state directory; make its key if there is none."""
        refuse_earlier_state(state)
        if not _has_key(state):
            keys.create_node_key(state / IDENTITY)
        return cls(state)

    @property
    def name(self) -> str:
        return self.facts[0].name if self.facts else ""

    @property
    def proof(self) -> bytes:
        """Return the certificates in the form in which members tell them; b"" without any."""
        return pack(self._credential.chain) if self.facts else b""

    @property
    def end(self) -> float:
        """Return when the certificate ends, or its sponsor's before it; 0 without a certificate."""
        return min((facts.ends for facts in self.facts), default=0.0)

    def own(self) -> Credential:
        """Return what the node shows; the same object until its certificate is renewed."""
        return self._credential

    def take_certificate(self, chain: bytes, roster: Roster) -> None:
        """Store a certificate of this node (PEM, with its sponsor's), and show it from now on.

        Only certificates are stored, whatever else the bytes hold. Raise IdentityError if the chain
        is not one of this key, and of this name if it has one, or is no later than the
        present one, which still holds.
        """
        certificates = read_chain(chain)
        chain = pem_of_chain(certificates)
        member = roster.identify(chain)
        if not isinstance(member, Member):
            raise IdentityError(f"this certificate cannot be used: {roster.explain(chain)}")
        if member.id != self.id or self.name not in {"", member.name}:
            raise IdentityError(
                f"this certificate is for {member.name!r} with the key {member.id}; this node is "
                f"{self.name!r} with {self.id}"
            )
        end = min(read_facts(one).ends for one in certificates)
        if self._holds(roster) and (end < self.end or chain == self._credential.chain):
            raise IdentityError(
                f"this certificate ends on {day(end)}, and the present one on {day(self.end)}"
            )
        put(self.state / IDENTITY / CERTIFICATE_FILE, chain.decode(), ELSEWHERE)
        self._show(chain)

    def needs_renewal(self, roster: Roster) -> bool:
        """Tell whether the certificate is missing, in its last third, or of a revoked sponsor."""
        return not self._holds(roster) or is_late(self.facts, self.clock())

    def _holds(self, roster: Roster) -> bool:
        """Tell whether there is a certificate that holds, of a sponsor that was not revoked."""
        if not self.facts or roster.explain(self._credential.chain):
            return False
        return not any(roster.is_revoked(facts.id) for facts in self.facts)

    def sponsor(self, root: bytes) -> Authority | None:
        """Return the authority of this node if it may sign certificates now; else None.

        root: the certificate of the mesh. Raise StateError if its file is damaged.
        """
        authority, end = self._sponsor(root)
        return authority if self.clock() <= end else None

    def sponsor_end(self, root: bytes) -> float:
        """Return when the right to sign certificates ends; 0 without one. Raise as `sponsor`."""
        return self._sponsor(root)[1]

    def take_sponsor(self, certificate: bytes, root: bytes) -> Facts:
        """Store the right to sign certificates, which the mesh key gave; return what it says.

        Raise IdentityError if the certificate is not for this node, has ended, or ends before the
        one that is stored: any member can send an earlier one, which stands in chains.
        """
        authority, facts = read_sponsor(certificate, self.key, root)
        if facts.name != self.name:
            raise IdentityError(f"this sponsor's certificate is for {facts.name!r}")
        if self.clock() > facts.ends:
            raise IdentityError(f"this sponsor's certificate ended on {day(facts.ends)}")
        with contextlib.suppress(StateError):  # a damaged one is replaced
            if facts.ends < (present := self.sponsor_end(root)):
                raise IdentityError(
                    f"this sponsor's certificate ends on {day(facts.ends)}, and the present one on "
                    f"{day(present)}"
                )
        (self.state / SPONSOR_FILE).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(self.state / SPONSOR_FILE, authority.chain.decode(), ELSEWHERE)
        return facts

    def _show(self, chain: bytes) -> None:
        self.facts = [read_facts(one) for one in read_chain(chain)] if chain else []
        self._credential = Credential(keys.pem_of(self.key), chain)

    def _sponsor(self, root: bytes) -> tuple[Authority | None, float]:
        """Return the authority of this node and when it ends; (None, 0) without one."""
        file = self.state / SPONSOR_FILE
        certificate = content_if_any(file)
        if certificate is None:
            return None, 0.0
        try:
            authority, facts = read_sponsor(certificate, self.key, root)
        except IdentityError as fault:
            raise StateError(
                f"{file} cannot be used ({fault}): run `fednode sponsor` with the mesh key again."
            ) from fault
        return authority, facts.ends


def keep_identity_private(state: Path) -> None:
    """Keep other users out of a state directory and its keys, as far as these are there.

    Raise StateError if others may have written there. The folder of the keys comes first, because
    what is done for the state directory closes it.
    """
    for folder in (state / IDENTITY, state):
        if folder.exists():
            keep_private(folder)


def name_in(state: Path) -> str:
    """Return the name in the certificate of a state directory; "" if there is none to read."""
    with contextlib.suppress(StateError, IdentityError):
        return read_facts(read_chain(content_of(state / IDENTITY / CERTIFICATE_FILE))[0]).name
    return ""


def refuse_earlier_state(state: Path) -> None:
    """Raise StateError if a state directory has an identity of an earlier version of fednode."""
    folder = state / IDENTITY
    earlier = [folder / "lease", state / "admission"]
    with contextlib.suppress(StateError):
        keys.load(folder / keys.KEY_FILE)
        earlier.append(folder / keys.KEY_FILE)
    if any(map(os.path.exists, earlier)):
        raise StateError(
            f"The identity in {state} is of an earlier version of fednode, whose keys and leases "
            "this version cannot use; nothing there was changed. Move this folder away, then begin "
            "anew: the founder with `fednode init MESH`, every other site with a new link and "
            "`fednode join LINK`."
        )


def _has_key(state: Path) -> bool:
    """Tell whether there is a key in a state directory; raise StateError if it cannot be read."""
    return content_if_any(state / IDENTITY / keys.KEY_FILE) is not None
