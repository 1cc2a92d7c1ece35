"""A node's own identity on disk: its key, its certificate, and its right to sign certificates."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.certificates import (
    Authority,
    Credential,
    Facts,
    id_of,
    pack,
    pem_of,
    read_chain,
    read_facts,
    read_sponsor,
)
from fednode.identity.roster import Member, Roster, day
from fednode.storage.files import put

IDENTITY: Final = "identity"
"""Folder of a state directory."""
SPONSOR_FILE: Final = Path("enrolment", "sponsor.crt")
CERTIFICATE_FILE: Final = "node.crt"
ELSEWHERE: Final = "state directory"


class NodeIdentity:
    """A node's key and certificate on disk, and its sponsor's certificate if it is a sponsor.

    identity/node.key       P-256, made once; it never leaves this machine
    identity/node.crt       the node's certificate and its sponsor's, renewed in their last third
    enrolment/sponsor.crt   of a node that may sign certificates, on the same key

    clock: seconds since the epoch, used only for the ends of validity.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        """Read the identity in a state directory; raise StateError without one that can be used."""
        refuse_earlier_state(state)
        if not (state / IDENTITY / keys.KEY_FILE).exists():
            raise StateError(
                f"There is no key of a node in {state / IDENTITY}: give the state directory of a "
                "node of this mesh with --state, or ask for a link and run `fednode join LINK`."
            )
        self.state, self.clock = state, clock
        self.key = keys.load_node_key(state / IDENTITY)
        self.id = id_of(self.key.public_key())
        file = state / IDENTITY / CERTIFICATE_FILE
        try:
            chain = file.read_bytes() if file.exists() else b""
            self.facts = read_facts(read_chain(chain)[0]) if chain else None
        except (OSError, IdentityError) as fault:
            raise StateError(
                f"{file} is damaged ({fault}): restore it from a backup, or ask for a new link and "
                "run `fednode join LINK`."
            ) from fault
        if self.facts is not None and self.facts.id != self.id:
            raise StateError(
                f"{file} is the certificate of another key than {file.with_name(keys.KEY_FILE)}: "
                "restore both from one backup."
            )
        self._credential = Credential(pem_of(self.key), chain)

    @classmethod
    def create(cls, state: Path) -> NodeIdentity:
        """Return the identity in a state directory; make its key if there is none."""
        refuse_earlier_state(state)
        if not (state / IDENTITY / keys.KEY_FILE).exists():
            keys.create_node_key(state / IDENTITY)
        return cls(state)

    @property
    def name(self) -> str:
        """Return the name in the certificate; "" without a certificate."""
        return "" if self.facts is None else self.facts.name

    @property
    def proof(self) -> bytes:
        """Return the certificates in the form in which members tell them; b"" without any."""
        return pack(self._credential.chain) if self._credential.chain else b""

    def own(self) -> Credential:
        """Return what the node shows; the same object until its certificate is renewed."""
        return self._credential

    def take_certificate(self, chain: bytes, roster: Roster) -> None:
        """Store a certificate of this node (PEM, with its sponsor's), and show it from now on.

        Raise IdentityError if the chain is not one of this key, and of this name if it has one.
        """
        member = roster.identify(chain)
        if not isinstance(member, Member):
            raise IdentityError(f"this certificate cannot be used: {roster.explain(chain)}")
        if member.id != self.id or self.name not in {"", member.name}:
            raise IdentityError(
                f"this certificate is for {member.name!r} with the key {member.id}; this node is "
                f"{self.name!r} with {self.id}"
            )
        put(self.state / IDENTITY / CERTIFICATE_FILE, chain.decode(), ELSEWHERE)
        self.facts = read_facts(read_chain(chain)[0])
        self._credential = Credential(self._credential.key, chain)

    def needs_renewal(self, roster: Roster) -> bool:
        """Tell whether the certificate is missing, in its last third, or of a revoked sponsor."""
        if self.facts is None or roster.explain(self._credential.chain):
            return True
        chain = [read_facts(one) for one in read_chain(self._credential.chain)]
        begins, ends = self.facts.begins, min(facts.ends for facts in chain)
        late = ends - self.clock() < (ends - begins) / 3
        return late or any(roster.is_revoked(facts.id) for facts in chain)

    def end(self) -> float:
        """Return when the certificate ends, or its sponsor's before it; 0 without a certificate."""
        chain = read_chain(self._credential.chain) if self.facts is not None else []
        return min((read_facts(one).ends for one in chain), default=0.0)

    def sponsor(self, root: bytes) -> Authority | None:
        """Return the authority of this node if it may sign certificates now; else None.

        root: the certificate of the mesh. Raise StateError if its file is damaged.
        """
        file = self.state / SPONSOR_FILE
        if not file.exists():
            return None
        try:
            authority, facts = read_sponsor(file.read_bytes(), self.key, root)
        except (OSError, IdentityError) as fault:
            raise StateError(
                f"{file} cannot be used ({fault}): run `fednode sponsor` with the mesh key again."
            ) from fault
        return authority if self.clock() <= facts.ends else None

    def sponsor_end(self) -> float:
        """Return when the sponsor's certificate ends; 0 without one.

        Raise StateError if its file is damaged.
        """
        file = self.state / SPONSOR_FILE
        try:
            return read_facts(read_chain(file.read_bytes())[0]).ends if file.exists() else 0.0
        except (OSError, IdentityError) as fault:
            raise StateError(
                f"{file} cannot be used ({fault}): run `fednode sponsor` with the mesh key again."
            ) from fault

    def take_sponsor(self, certificate: bytes, root: bytes) -> Facts:
        """Store the right to sign certificates, which the mesh key gave; return what it says.

        Raise IdentityError if the certificate is not for this node, or has ended.
        """
        _, facts = read_sponsor(certificate, self.key, root)
        if facts.name != self.name:
            raise IdentityError(f"this sponsor's certificate is for {facts.name!r}")
        if self.clock() > facts.ends:
            raise IdentityError(f"this sponsor's certificate ended on {day(facts.ends)}")
        (self.state / SPONSOR_FILE).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(self.state / SPONSOR_FILE, certificate.decode(), ELSEWHERE)
        return facts


def name_in(state: Path) -> str:
    """Return the name in the certificate of a state directory; "" if there is none to read."""
    with contextlib.suppress(OSError, IdentityError):
        return read_facts(read_chain((state / IDENTITY / CERTIFICATE_FILE).read_bytes())[0]).name
    return ""


def refuse_earlier_state(state: Path) -> None:
    """Raise StateError if a state directory has an identity of an earlier version of fednode."""
    folder = state / IDENTITY
    earlier = (folder / "lease").exists() or (state / "admission").exists()
    if not earlier and (folder / keys.KEY_FILE).exists():
        with contextlib.suppress(StateError):
            keys.load(folder / keys.KEY_FILE)
            earlier = True
    if earlier:
        raise StateError(
            f"The identity in {state} is of an earlier version of fednode, whose keys and leases "
            "this version cannot use; nothing there was changed. Move this folder away, then begin "
            "anew: the founder with `fednode init MESH`, every other site with a new link and "
            "`fednode join LINK`."
        )
