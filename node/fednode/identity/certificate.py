"""A node's certificate: X.509, signed by its own key, short-lived, with its lease inside.

TLS proves that the other end holds the key of the certificate that it shows. No authority signs the
certificate: the fingerprint of the key decides whether the key belongs to a member
(node/fednode/identity/trust.py).
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.x509.oid import NameOID, ObjectIdentifier

from fednode.errors import IdentityError
from fednode.identity.keys import fingerprint, raw

DAYS: Final = 397
DAY_S: Final = 86_400
# Clocks of two nodes may differ: a certificate is valid from a day before it was made.
SKEW: Final = datetime.timedelta(days=1)
LEASE: Final = ObjectIdentifier("2.25.313929485627133907431929463106190613821")
"""Object identifier of the extension with the lease, in the arc for private use (ITU-T X.667)."""
CERTIFICATE_BYTES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The content of a certificate. expires: seconds since the epoch. lease: a proof, or b""."""

    id: str
    name: str
    begins: float
    expires: float
    lease: bytes = b""


def mint(
    key: Ed25519PrivateKey, name: str, lease: bytes, now: float, days: float = DAYS
) -> x509.Certificate:
    """Return a new certificate of a key, valid for `days` days from now."""
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - SKEW)
        .not_valid_after(moment + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    if lease:
        builder = builder.add_extension(x509.UnrecognizedExtension(LEASE, lease), critical=False)
    return builder.sign(key, None)


def shown_by(
    key: Ed25519PrivateKey, name: str, clock: Callable[[], float] = time.time
) -> Callable[[], tuple[Ed25519PrivateKey, x509.Certificate]]:
    """Return credentials that show a key without a lease, with a new certificate each day."""
    shown: list[tuple[float, x509.Certificate]] = []

    def credentials() -> tuple[Ed25519PrivateKey, x509.Certificate]:
        now = clock()
        if not shown or now - shown[0][0] > DAY_S:
            shown[:] = [(now, mint(key, name, b"", now))]
        return key, shown[0][1]

    return credentials


def read_certificate(data: bytes) -> CertificateFacts:
    """Return the content of a certificate in DER; raise IdentityError if it is not a node's."""
    if len(data) > CERTIFICATE_BYTES_MAX:
        raise IdentityError(f"its certificate has {len(data):,} bytes, which no node's has")
    try:
        certificate = x509.load_der_x509_certificate(data)
        key = certificate.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise IdentityError("its certificate has no Ed25519 key, which every node's has")
        key.verify(certificate.signature, certificate.tbs_certificate_bytes)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        leases = [
            extension.value.public_bytes()
            for extension in certificate.extensions
            if extension.oid == LEASE
        ]
        begins, expires = (
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
        )
    except InvalidSignature as fault:
        raise IdentityError("its certificate is not signed by its own key") from fault
    except IdentityError:
        raise
    except Exception as fault:  # whatever a parser raises for foreign bytes
        raise IdentityError("its certificate cannot be read") from fault
    name = str(names[0].value) if names else ""
    lease = leases[0] if leases else b""
    return CertificateFacts(fingerprint(raw(key)), name, begins, expires, lease)


def judged(data: bytes, fault: Callable[[CertificateFacts], str]) -> tuple[str, str]:
    """Return the id of a certificate in DER ("" if it has none), and why it is refused ("" if not).

    fault: returns what is wrong with a certificate that can be read; "" if nothing is.
    """
    try:
        facts = read_certificate(data)
    except IdentityError as unreadable:
        return "", str(unreadable)
    return facts.id, fault(facts)
