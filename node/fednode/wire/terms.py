"""Settings documents (node/fednode/core/documents.py) in protobuf messages, and back."""

from __future__ import annotations

from typing import Final

from fednode.core.types import Document, Message, Terms
from fednode.wire.gen import exchange_pb2

DIGEST_BYTES: Final = 16
DOCUMENT_BYTES_MAX: Final = 24_576
BYTES_MAX: Final = DOCUMENT_BYTES_MAX + 3 * DIGEST_BYTES + 32
"""Most bytes of both fields on the wire."""
PASSES_ON: Final = "settings"
"""The only phase whose messages carry a document."""


def written(terms: Terms | None) -> exchange_pb2.Terms | None:
    """Return the digests of a sender as a protobuf message."""
    if terms is None:
        return None
    return exchange_pb2.Terms(
        force=bytes.fromhex(terms.force),
        accepts=bytes.fromhex(terms.accepts),
        knows=bytes.fromhex(terms.knows),
    )


def read(envelope: exchange_pb2.Envelope) -> Terms | None:
    """Return the digests in an envelope; None if it has none."""
    if not envelope.HasField("terms"):
        return None
    found = envelope.terms
    return Terms(found.force.hex(), found.accepts.hex(), found.knows.hex())


def carried(envelope: exchange_pb2.Envelope) -> Document | None:
    """Return the document in an envelope, of which nothing but the bytes is known yet."""
    return Document(proof=bytes(envelope.document)) if envelope.document else None


def fault(message: Message) -> str:
    """Return what is wrong with the digests and the document of a message; "" for nothing."""
    terms, document = message.terms, message.document
    for digest in () if terms is None else (terms.force, terms.accepts, terms.knows):
        if digest and len(digest) != 2 * DIGEST_BYTES:
            return (
                f"the digest {digest[:40]!r} of a settings document is not of {DIGEST_BYTES} bytes"
            )
    if document is None:
        return ""
    if message.phase != PASSES_ON:
        return f"a {message.phase!r} message carries a settings document"
    if len(document.proof) > DOCUMENT_BYTES_MAX:
        size = len(document.proof)
        return f"a settings document of {size:,} bytes; at most {DOCUMENT_BYTES_MAX:,} fit"
    return ""
