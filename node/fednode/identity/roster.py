"""Who may call: members by their chain of certificates, guests by an open invitation.

TLS checked the chain already, when the connection began. It is checked again at calls, because a
connection lasts longer than an invitation, a certificate, or the trust in a key.
"""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from fednode.identity.certificates import INVITATION_DAYS, Authority, id_of

CHAIN_MAX: Final = 2
"""A node and its sponsor; a newcomer shows one certificate."""
CHAINS_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the mesh."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Guest:
    """A newcomer with an invitation, which may ask for a certificate and do nothing else.

    name: the one that it is invited under.
    """

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class _Chain:
    """What a chain says. issuer: the anchor's name. ids: of all keys in it, the leaf's first."""

    name: str
    issuer: str
    ids: tuple[str, ...]
    end: datetime.datetime


class Roster:
    """Trust of one node. version: grows with each change of what TLS is to trust."""

    def __init__(self, root: bytes) -> None:
        """Set up. root: the mesh's own certificate, in PEM."""
        self.root = root
        self.version = 0
        self._anchors = {_common_name(x509.load_pem_x509_certificate(root)): root}
        self._root_name = next(iter(self._anchors))
        self._invited: dict[str, str] = {}
        self._revoked: dict[str, bytes] = {}
        self._read = functools.lru_cache(CHAINS_KEPT)(self._verify)

    @property
    def anchors(self) -> bytes:
        """Return all certificates that TLS is to trust, in PEM."""
        return b"".join(self._anchors.values())

    def invite(self, name: str, token: bytes) -> None:
        """Let who holds a token call under a name, until `uninvite`."""
        authority = Authority.invitation(token)
        self._invited[authority.name] = name
        self._change(authority.name, authority.anchor(INVITATION_DAYS, below=0))

    def uninvite(self, token: bytes) -> None:
        """End an invitation."""
        name = Authority.invitation(token).name
        self._invited.pop(name, None)
        self._change(name, b"")

    def revoke(self, id: str, proof: bytes) -> None:
        """Believe a key no more: a node's, or a sponsor's with all that it signed."""
        self._revoked[id] = proof

    def identify(self, chain: bytes) -> Member | Guest | None:
        """Return whose chain of certificates (PEM) this is; None if it may not call."""
        found = self._read(chain)
        if found is None or found.end < datetime.datetime.now(datetime.UTC) or self.proof(chain):
            return None
        if found.issuer == self._root_name:
            return Member(found.name, found.ids[0])
        invited = self._invited.get(found.issuer)
        return None if invited is None else Guest(invited, found.ids[0])

    def proof(self, chain: bytes) -> bytes:
        """Return the proof that a key in a chain was revoked; b"" for none."""
        found = self._read(chain)
        ids = () if found is None else found.ids
        return next((self._revoked[id] for id in ids if id in self._revoked), b"")

    def _change(self, name: str, anchor: bytes) -> None:
        self._anchors.pop(name, None)
        if anchor:
            self._anchors[name] = anchor
        self.version += 1
        self._read.cache_clear()

    def _verify(self, pem: bytes) -> _Chain | None:
        """Return what a chain says, if each certificate is signed by the next, the last by us."""
        try:
            chain = x509.load_pem_x509_certificates(pem)[:CHAIN_MAX]
            ids = tuple(id_of(each.public_key()) for each in chain)  # type: ignore[arg-type]
            if _may_sign(chain[0]):
                return None  # a sponsor calls with the certificate of its node
            for depth, one in enumerate(chain):
                anchor = self._anchors.get(_common_name(one, issuer=True))
                if anchor is not None:
                    one.verify_directly_issued_by(x509.load_pem_x509_certificate(anchor))
                    end = min(each.not_valid_after_utc for each in chain[: depth + 1])
                    issuer = _common_name(one, issuer=True)
                    return _Chain(_common_name(chain[0]), issuer, ids[: depth + 1], end)
                if depth + 1 == len(chain):
                    return None
                if not _may_sign(chain[depth + 1]):
                    return None
                one.verify_directly_issued_by(chain[depth + 1])
        except (ValueError, TypeError, IndexError, InvalidSignature, x509.ExtensionNotFound):
            pass
        return None


def _common_name(certificate: x509.Certificate, issuer: bool = False) -> str:
    named = certificate.issuer if issuer else certificate.subject
    found = named.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _may_sign(certificate: x509.Certificate) -> bool:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
