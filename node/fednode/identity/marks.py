"""Signatures under marks (node/fednode/core/lives.py), by the key of the node that a mark is about.

A proof is the raw public key (32 bytes), followed by its signature (64 bytes). Everybody can check
it who knows the id of the key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fednode.core.types import Mark
from fednode.identity import keys
from fednode.identity.identity import Identity

KEY_BYTES: Final = 32
KNOWN_MAX: Final = 1024
_PURPOSE: Final = b"fednode mark 1\0"


@dataclass(slots=True)
class Marks:
    """Signs the marks of one node, and checks those of its peers.

    identity: of the node; None in a mesh without keys, where no mark has a proof.
    """

    mesh: str
    identity: Identity | None = None
    _checked: dict[str, Mark] = field(default_factory=dict)  # by id: the last with a good proof

    def sign(self, mark: Mark) -> bytes:
        """Return the proof of a mark of this node; b"" without a key."""
        if self.identity is None:
            return b""
        key = self.identity.key
        signature = key.sign(self._text(mark, self.identity.id))
        return keys.raw(key.public_key()) + signature

    def checked(self, mark: Mark | None, id: str) -> Mark | None:
        """Return a mark of the key with this id, without its proof if that key did not sign it."""
        if mark is None or not mark.proof or mark == self._checked.get(id):
            return mark
        if self.identity is None or not self._signed(mark, id):
            return replace(mark, proof=b"")
        if len(self._checked) >= KNOWN_MAX:
            self._checked.clear()
        self._checked[id] = mark
        return mark

    def own(self, mark: Mark | None) -> Mark | None:
        """Return what a peer shows as a mark of this node, as `checked` does."""
        return self.checked(mark, "" if self.identity is None else self.identity.id)

    def _signed(self, mark: Mark, id: str) -> bool:
        public, signature = mark.proof[:KEY_BYTES], mark.proof[KEY_BYTES:]
        if len(public) != KEY_BYTES or not id or keys.fingerprint(public) != id:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, self._text(mark, id))
        except (InvalidSignature, ValueError):
            return False
        return True

    def _text(self, mark: Mark, id: str) -> bytes:
        values = [self.mesh, id, mark.process, mark.run, mark.round, mark.released]
        return _PURPOSE + json.dumps(values).encode()
