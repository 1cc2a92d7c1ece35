"""A node's own identity on disk: its key, its certificate, and the lease or succession it shows.

node.key    Ed25519, made at first start    node.crt    renewed long before it expires lease
signed by the mesh key          succession  signed by the key before this key
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import DAYS, SKEW, CertificateFacts, mint, read_certificate
from fednode.identity.lease import DAY_S, Statement, armour, disarm
from fednode.storage.files import put

CERTIFICATE_FILE: Final = "node.crt"
LEASE_FILE: Final = "lease"
SUCCESSION_FILE: Final = "succession"
RENEW_BELOW: Final = 0.5
ELSEWHERE: Final = "state directory"


class Identity:
    """The identity that one node shows.

    clock: seconds since the epoch, used only for the ends of validity.
    """

    def __init__(
        self,
        folder: Path,
        mesh: str,
        name: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the identity in a folder; make its key if there is none."""
        self.folder, self.mesh, self.name = folder, mesh, name
        self.key = keys.load_or_create(folder)
        self.clock = clock
        self._certificate: x509.Certificate | None = None
        self._shown = b""

    @property
    def id(self) -> str:
        """Return the fingerprint of the public key."""
        return keys.node_id(self.key)

    @property
    def proof(self) -> bytes:
        """Return the lease or, without a lease, the succession; b"" if there is neither."""
        return self._read(LEASE_FILE) or self._read(SUCCESSION_FILE)

    @property
    def lease(self) -> Statement | None:
        """Return the content of the lease; None without a lease."""
        held = self._read(LEASE_FILE)
        return leases.peek(held) if held else None

    def credentials(self) -> tuple[Ed25519PrivateKey, x509.Certificate]:
        """Return the key and a certificate; a certificate that is half used up is renewed."""
        now, proof = self.clock(), self.proof
        held = self._certificate
        fresh = held is not None and self._shown == proof
        if held is None or not fresh or _left(held, now) < RENEW_BELOW:
            held = self._certificate = mint(self.key, self.name, proof, now)
            self._shown = proof
            text = held.public_bytes(serialization.Encoding.PEM).decode()
            # A new certificate is made at each start, so a full disk does no harm here.
            with contextlib.suppress(StateError):
                if not self.clock_fault():
                    put(self.folder / CERTIFICATE_FILE, text, ELSEWHERE)
        return self.key, held

    def clock_fault(self) -> str:
        """Return that the clock is before the date of the node's own certificate; "" if not."""
        try:
            began = _stored(self.folder / CERTIFICATE_FILE).begins + SKEW.total_seconds()
        except StateError:
            return ""
        now = self.clock()
        if now >= began - leases.SKEW_S:
            return ""
        return (
            f"The clock of this machine says {leases.day(now)}, and the certificate of this node "
            f"was made on {leases.day(began)}: set the clock, and start the node again. Until then "
            "other members and this node may refuse each other. No lease is deleted."
        )

    def take_lease(self, proof: bytes) -> None:
        """Store a lease for this key; raise IdentityError for a lease of another key."""
        statement = leases.peek(proof)
        if (statement.kind, statement.mesh, statement.name, statement.id) != (
            "lease",
            self.mesh,
            self.name,
            self.id,
        ):
            raise IdentityError(
                f"this {statement.kind} is for {statement.name!r} of mesh {statement.mesh!r} with "
                f"the id {statement.id}; this node is {self.name!r} of {self.mesh!r} with {self.id}"
            )
        put(self.folder / LEASE_FILE, armour(proof) + "\n", ELSEWHERE)

    def wants_lease(self) -> bool:
        """Tell whether a lease is missing or ends soon."""
        held = self.lease
        return held is None or leases.nearly_over(held, self.clock())

    def lease_end(self) -> str:
        """Return that the lease has ended, and when; "" if it holds or there is none."""
        held, now = self.lease, self.clock()
        if held is None or not held.expires or now <= held.expires:
            return ""
        return (
            f"The lease of this node ended on {leases.day(held.expires)}, so the other members "
            "take nothing from it any more."
        )

    def rotate(self) -> tuple[str, str]:
        """Replace the key by a new key; return the ids before and after.

        The old key signs that the new key is its successor. So peers whose peers.yaml still gives
        the old id accept the new id. A lease belongs to the old key and is removed.
        """
        old, before = self.key, self.id
        new = Ed25519PrivateKey.generate()
        after = keys.node_id(new)
        statement = Statement(
            kind="succession", mesh=self.mesh, name=self.name, id=after,
            issued=int(self.clock()), expires=0, by=keys.written(old.public_key()),
        )  # fmt: skip
        put(self.folder / SUCCESSION_FILE, armour(leases.sign(old, statement)) + "\n", ELSEWHERE)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / LEASE_FILE).unlink()
        keys.keep(self.folder / keys.KEY_FILE, new)
        self.key, self._certificate = new, None
        return before, after

    def _read(self, name: str) -> bytes:
        path = self.folder / name
        if not path.is_file():
            return b""
        try:
            return disarm(path.read_text(encoding="ascii"))
        except (OSError, UnicodeDecodeError, IdentityError) as fault:
            raise StateError(
                f"{path} is damaged: delete it and ask for a new one ({fault})."
            ) from fault


def _left(certificate: x509.Certificate, now: float) -> float:
    """Return the share (0..1) of a certificate's days that is left."""
    return (certificate.not_valid_after_utc.timestamp() - now) / (DAYS * DAY_S)


def valid_until(folder: Path) -> str:
    """Return the date until which a folder's certificate is valid, for people; "" without one.

    Raise StateError if the certificate's file is damaged.
    """
    path = folder / CERTIFICATE_FILE
    return leases.day(_stored(path).expires) if path.exists() else ""


def _stored(path: Path) -> CertificateFacts:
    """Return what a certificate's file says; raise StateError if it is missing or damaged."""
    try:
        held = x509.load_pem_x509_certificate(path.read_bytes() if path.is_file() else b"")
        return read_certificate(held.public_bytes(serialization.Encoding.DER))
    except (OSError, ValueError, IdentityError) as fault:
        raise StateError(
            f"{path} is damaged ({fault}): delete it; `fednode start` makes a new certificate."
        ) from fault
