"""The mesh's settings document: the shared settings and the relays, signed by a sponsor.

A document is the signature (64 bytes), followed by its content as JSON with sorted keys and without
spaces. The content holds the public key that signed it, and the proof that the mesh key made this
key a sponsor's (fednode.identity.lease). So whoever has the mesh key can check a document.

This module checks that the settings are a tree of JSON values. Which settings a document may hold,
and whether they are valid, the application decides (fednode.app.documents).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fednode.errors import AddressError, IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.keys import PrivateKey
from fednode.identity.lease import SKEW_S, Statement, armour, disarm
from fednode.transports.address import RELAY, parse

DOCUMENT_BYTES_MAX: Final = 24_576
DIGEST_DIGITS: Final = 32
NUMBER_MAX: Final = 1_000_000_000
"""Largest number of a document, and largest round at which one begins."""
RELAYS_MAX: Final = 4
DEPTH_MAX: Final = 8
"""Deepest nesting of the settings."""
TIME_MAX: Final = 1 << 40
"""Largest time in seconds since the epoch."""
_SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"fednode settings document 1\0"
_DIGITS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a document says.

    number: counts the documents of a mesh, from 1. previous: digest of the document that it
    changes; "" for none. start: the round from which on it holds. settings: by section and key.
    relays: with address and id each. issued: seconds since the epoch. by: the key that signs it, as
    text. under: the proof that this key is a sponsor's, as a line of text.
    """

    mesh: str
    number: int
    previous: str
    start: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    relays: tuple[tuple[str, str], ...] = ()
    issued: int
    by: str = ""
    under: str = ""

    @property
    def right(self) -> Statement:
        """The right of the sponsor that signed the document."""
        return leases.peek(disarm(self.under))

    @property
    def signer(self) -> str:
        """The name of the sponsor that signed the document."""
        return self.right.name


def sign(key: PrivateKey, right: bytes, content: Content) -> bytes:
    """Return the document of a content, signed by a sponsor's key. right: its proof.

    Raise IdentityError if nobody would read the document, such as when the right has ended.
    """
    own = keys.written(key.public_key())
    said = replace(content, by=own, under=armour(right))
    try:
        body = _body(said)
    except ValueError as fault:
        raise IdentityError(f"these settings cannot be written down: {fault}") from fault
    proof = key.sign(_PURPOSE + body) + body
    _check_right(peek(proof), content.mesh)
    return proof


def read(
    proof: bytes,
    mesh_key: Ed25519PublicKey,
    revoked: Callable[[str], bool],
    mesh: str,
    now: float,
) -> Content:
    """Return what a document says; raise IdentityError with one sentence for any other bytes.

    revoked: tells whether the key of an id was revoked. now: seconds since the epoch.
    """
    content = peek(proof)
    signer = keys.read_public(content.by)
    try:
        signer.verify(proof[:_SIGNATURE_BYTES], _PURPOSE + proof[_SIGNATURE_BYTES:])
    except InvalidSignature as fault:
        raise IdentityError("a settings document is not signed by the key that it names") from fault
    if content.mesh != mesh:
        raise IdentityError(
            f"a settings document is for the mesh {content.mesh[:80]!r}, not {mesh!r}"
        )
    right = leases.read(disarm(content.under), mesh_key)
    _check_right(content, mesh)
    if revoked(right.id):
        raise IdentityError(
            f"the sponsor {right.name!r} signed a settings document, and its key was revoked"
        )
    if content.issued - SKEW_S > now:
        raise IdentityError(
            "a settings document is from the future: check the clocks of this node and of "
            f"{right.name!r}"
        )
    return content


def peek(proof: bytes) -> Content:
    """Return what a document says, whoever signed it; raise IdentityError for other bytes."""
    if len(proof) > DOCUMENT_BYTES_MAX:
        raise _too_long(proof)
    body = proof[_SIGNATURE_BYTES:]
    try:
        fields = json.loads(body)
        relays = tuple(tuple(pair) for pair in fields.pop("relays"))
        content = Content(**fields, relays=relays)
        sound = _body(content) == body
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        raise IdentityError("these bytes are no settings document") from fault
    if not sound:
        raise IdentityError("a settings document is not written as its signer writes it")
    _check(content)
    return content


def digest_of(proof: bytes) -> str:
    """Return the digest by which a document is known: 32 hexadecimal digits."""
    return hashlib.sha256(proof).hexdigest()[:DIGEST_DIGITS]


def _body(content: Content) -> bytes:
    """Return a content as its signer writes it; raise ValueError for text that is not Unicode."""
    fields = asdict(content)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    json.dumps(fields, ensure_ascii=False).encode()  # half of a pair of surrogates is no text
    return text.encode()


def _check(content: Content) -> None:
    """Raise IdentityError for a content whose fields are of other types, or beyond a limit."""
    words = (content.mesh, content.previous, content.by, content.under)
    counts = (content.number, content.start)
    known = all(isinstance(word, str) for word in words)
    if not known or not all(type(count) is int for count in (*counts, content.issued)):
        raise IdentityError("a settings document has fields that this version does not know")
    if not 1 <= content.number <= NUMBER_MAX or not 0 <= content.start <= NUMBER_MAX:
        raise IdentityError(
            f"a settings document has the number {content.number} and begins at round "
            f"{content.start}: numbers go from 1, and rounds from 0, to {NUMBER_MAX}"
        )
    if not 0 <= content.issued <= TIME_MAX:
        raise IdentityError(f"a settings document was signed at second {content.issued}")
    if content.previous and (
        len(content.previous) != DIGEST_DIGITS or not _DIGITS.issuperset(content.previous)
    ):
        raise IdentityError("a settings document follows a document whose digest is none")
    if not isinstance(content.settings, dict) or not _is_tree(content.settings, DEPTH_MAX):
        raise IdentityError("a settings document holds something else than sections of settings")
    _check_relays(content.relays)


def _is_tree(tree: Any, depth: int) -> bool:
    """Tell whether a value is of sections, lists and plain values, at most so many levels deep."""
    if isinstance(tree, dict):
        return depth > 0 and all(
            isinstance(key, str) and _is_tree(value, depth - 1) for key, value in tree.items()
        )
    if isinstance(tree, list | tuple):
        return depth > 0 and all(_is_tree(value, depth - 1) for value in tree)
    return tree is None or isinstance(tree, bool | int | float | str)


def _check_relays(relays: tuple[tuple[str, str], ...]) -> None:
    """Raise IdentityError for relays that are not pairs of an address and an id."""
    if len(relays) > RELAYS_MAX:
        raise IdentityError(
            f"a settings document names {len(relays)} relays; at most {RELAYS_MAX} are allowed"
        )
    for pair in relays:
        if len(pair) != 2 or not all(isinstance(word, str) for word in pair):
            raise IdentityError("a settings document names a relay without an address and an id")
        address, id = pair
        try:
            endpoint = parse(address)
        except AddressError as fault:
            raise IdentityError(f"a settings document names a wrong relay: {fault}") from fault
        if address == RELAY or endpoint.relayed or endpoint.port == 0:
            raise IdentityError(
                f"a settings document names the relay {address[:80]!r}; write host:port"
            )
        keys.read_group(id)


def _check_right(content: Content, mesh: str) -> None:
    """Raise IdentityError if the document's own proof does not make its signer a sponsor."""
    right = content.right
    signer = keys.fingerprint(keys.read_group(content.by))
    if right.kind != "sponsor" or right.id != signer:
        raise IdentityError("a settings document is signed by a key that is no sponsor's")
    if right.mesh != mesh:
        raise IdentityError(
            f"a settings document is signed by a sponsor of the mesh {right.mesh!r}, not {mesh!r}"
        )
    if not right.issued <= content.issued <= right.expires:
        raise IdentityError(
            f"the sponsor {right.name!r} signed a settings document at a time at which it was no "
            "sponsor: its right had ended, or had not begun"
        )


def _too_long(proof: bytes) -> IdentityError:
    return IdentityError(
        f"a settings document has {len(proof):,} bytes, and {DOCUMENT_BYTES_MAX:,} is the limit"
    )
