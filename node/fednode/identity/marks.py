"""Signatures under marks (node/fednode/core/lives.py), by the key of the node that a mark is about.

A proof is a signature of 64 bytes. Only the node that a mark is about checks it, when a peer shows
the mark to it; its peers keep a proof as it came. Marks that earlier versions signed have the raw
public key (32 bytes) ahead of the signature.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.core.types import Mark
from fednode.identity import keys
from fednode.identity.identity import Identity

_PURPOSE: Final = b"fednode mark 1\0"


@dataclass(slots=True)
class Marks:
    """Signs the marks of one node, and checks those that its peers show to it.

    identity: of the node; None in a mesh without keys, where no mark has a proof.
    """

    mesh: str
    identity: Identity | None = None
    _key: Ed25519PrivateKey | None = None  # whose public half and id are kept here
    _public: bytes = b""
    _id: str = ""

    def sign(self, mark: Mark) -> bytes:
        """Return the proof of a mark of this node; b"" without a key."""
        if self.identity is None:
            return b""
        return self._own(self.identity).sign(self._text(mark))

    def own(self, mark: Mark | None) -> Mark | None:
        """Return what a peer shows as a mark of this node, without a proof that is not its own."""
        if mark is None or not mark.proof:
            return mark
        if self.identity is None or not self._signed(mark, self.identity):
            return replace(mark, proof=b"")
        return mark

    def _own(self, identity: Identity) -> Ed25519PrivateKey:
        """Return the key of this node, which may have changed since the last mark."""
        if self._key is not identity.key:
            self._key = identity.key
            self._public = keys.raw(self._key.public_key())
            self._id = keys.fingerprint(self._public)
        return self._key

    def _signed(self, mark: Mark, identity: Identity) -> bool:
        key = self._own(identity)
        try:
            key.public_key().verify(mark.proof.removeprefix(self._public), self._text(mark))
        except (InvalidSignature, ValueError):
            return False
        return True

    def _text(self, mark: Mark) -> bytes:
        values = [self.mesh, self._id, mark.process, mark.run, mark.round, mark.released]
        return _PURPOSE + json.dumps(values).encode()
