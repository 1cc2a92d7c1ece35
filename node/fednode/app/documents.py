"""The settings documents that a node keeps: those that it knows, and what was decided on them.

    settings/DIGEST         a document, as one line of text (fednode.identity.document)
    settings/standing.json  which document is in force, and which are accepted or refused

A document's file is written before standing.json names it. A crash in between leaves a document
that nobody has decided on. Everything is for the owner alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fednode.core.documents import HELD_MAX, NONE, PAST_MAX, Documents, order
from fednode.core.types import Document
from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.document import Content, digest_of, read
from fednode.identity.lease import armour, disarm
from fednode.settings.peers import Peers, RelayEntry
from fednode.storage.disk import Disk, because
from fednode.storage.files import put

FOLDER: Final = "settings"
STANDING: Final = "standing.json"
ELSEWHERE: Final = "state directory"


def nobody(id: str) -> bool:
    """Return False: what a node took before stays, though its signer's key was revoked since."""
    return False


def document_of(proof: bytes, content: Content) -> Document:
    """Return a checked document as the core knows it."""
    return Document(content.number, digest_of(proof), content.start, proof)


def with_relays(peers: Peers, content: Content) -> Peers:
    """Return the peers under a document: its relays hold if it names any."""
    relays = tuple(RelayEntry(address, id) for address, id in content.relays)
    return replace(peers, relays=relays or peers.relays)


@dataclass(frozen=True, slots=True)
class Known:
    """A document that a node keeps, and what it says."""

    document: Document
    content: Content


class DocumentFolder:
    """The documents of one node's state directory.

    force: the digest of the document in force; "" for none. accepted, refused: digests of those
    that were decided on. unbound: the state directory is not tied to the settings in force yet;
    anew: it still holds a run under other settings then.
    """

    def __init__(self, state: Path, mesh: str, mesh_key: str | None) -> None:
        """Read the folder, if there is one; raise StateError if it is damaged."""
        self._folder, self._disk = state / FOLDER, Disk()
        self.known: dict[str, Known] = {}
        self.force, self.unbound, self.anew = "", False, False
        self.accepted, self.refused = set[str](), set[str]()
        if mesh_key is not None and self._folder.is_dir():
            self._read(mesh, mesh_key)

    @classmethod
    def of(cls, state: Path, peers: Peers) -> DocumentFolder:
        """Return the documents in a state directory of a node of this mesh."""
        return cls(state, peers.mesh, peers.mesh_key)

    @property
    def in_force(self) -> Known | None:
        """The document in force; None while the settings stand in the files alone."""
        return self.known.get(self.force)

    @property
    def documents(self) -> Documents:
        """What the core is told of the documents at a start; accepted ones are prepared first."""
        force = NONE if self.in_force is None else self.in_force.document
        others = {key: one.document for key, one in self.known.items() if key != self.force}
        held = {key: one for key, one in others.items() if order(one) > order(force)}
        past = {key: replace(one, proof=b"") for key, one in others.items() if key not in held}
        return Documents(force, held, past, refused=set(self.refused))

    @property
    def past(self) -> list[Content]:
        """What the documents say that were replaced by the one in force, oldest first."""
        least = NONE if self.in_force is None else self.in_force.document
        older = [one for one in self.known.values() if order(one.document) < order(least)]
        return [one.content for one in sorted(older, key=lambda one: order(one.document))]

    def keep(self, proof: bytes, content: Content) -> Document:
        """Store a checked document; forget the oldest of too many. Raise StateError if it fails."""
        document = document_of(proof, content)
        if document.digest not in self.known:
            self._make_folder()
            put(self._folder / document.digest, armour(proof) + "\n", ELSEWHERE, disk=self._disk)
            self.known = {**self.known, document.digest: Known(document, content)}
            self._forget()
        return document

    def decide(self, digest: str, accepts: bool) -> None:
        """Store a decision on a known document; raise StateError if that fails."""
        accepted = self.accepted | {digest} if accepts else self.accepted - {digest}
        refused = self.refused - {digest} if accepts else self.refused | {digest}
        self._write(self.force, accepted, refused, self.unbound, self.anew)

    def begin(self, digest: str, anew: bool = False) -> None:
        """Make a known document the one in force; raise StateError if that fails.

        anew: the rounds begin anew under it.
        """
        self._write(digest, self.accepted - {digest}, self.refused - {digest}, True, anew)
        self._forget()

    def bound(self) -> None:
        """Note that the state directory is tied to the settings in force."""
        self._write(self.force, self.accepted, self.refused, unbound=False, anew=False)

    def _write(
        self, force: str, accepted: set[str], refused: set[str], unbound: bool, anew: bool
    ) -> None:
        self._make_folder()
        accepted, refused = accepted & self.known.keys(), refused & self.known.keys()
        said = {
            "force": force,
            "accepted": sorted(accepted),
            "refused": sorted(refused),
            "unbound": unbound,
            "anew": anew,
        }
        text = json.dumps(said, indent=1) + "\n"
        put(self._folder / STANDING, text, ELSEWHERE, disk=self._disk)
        self.force, self.unbound, self.anew = force, unbound, anew
        self.accepted, self.refused = accepted, refused

    def _forget(self) -> None:
        """Remove all but the newest documents, and all but some of those that were replaced.

        The oldest stays: it wrote the node's own file.
        """
        held = [one.document for digest, one in self.known.items() if digest != self.force]
        least = NONE if self.in_force is None else self.in_force.document
        newest = sorted((one for one in held if order(one) > order(least)), key=order)
        past = sorted((one for one in held if order(one) < order(least)), key=order)
        stay = [*newest[-HELD_MAX:], *past[:1], *past[1:][1 - PAST_MAX :]]
        kept = {one.digest for one in stay} | self.accepted | {self.force}
        gone = sorted(self.known.keys() - kept)
        self.known = {digest: one for digest, one in self.known.items() if digest in kept}
        for digest in gone:
            self._disk.remove(self._folder / digest)

    def _make_folder(self) -> None:
        try:
            self._disk.make_folder(self._folder)
        except OSError as fault:
            raise StateError(
                f"{self._folder} cannot be made: {because(fault)}. Make sure that this user may "
                "write there."
            ) from fault

    def _read(self, mesh: str, mesh_key: str) -> None:
        path = self._folder / STANDING
        try:
            said = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            self.force = str(said.get("force", ""))
            self.unbound, self.anew = said.get("unbound") is True, said.get("anew") is True
            self.accepted = set(map(str, said.get("accepted", ())))
            self.refused = set(map(str, said.get("refused", ())))
            public = keys.read_public(mesh_key)
            for file in sorted(self._folder.iterdir()):
                if "." in file.name:  # standing.json, or a file that a crash left aside
                    continue
                proof = disarm(file.read_text(encoding="ascii"))
                content = read(proof, public, nobody, mesh, math.inf)
                document = document_of(proof, content)
                if document.digest != file.name:
                    raise ValueError(f"{file.name} holds the document {document.digest}")
                self.known[document.digest] = Known(document, content)
            missing = {*self.accepted, self.force} - {""} - self.known.keys()
            if missing:
                raise ValueError(f"the document {min(missing)} is missing")
        except (OSError, ValueError, AttributeError, TypeError, IdentityError) as fault:
            raise StateError(
                f"{self._folder} is damaged ({fault}), so which settings are in force is not "
                "known: restore it from a backup, or delete it, and this node begins with the "
                "settings of its own files and takes those of the mesh again."
            ) from fault
        self.refused &= self.known.keys()


def named(known: Mapping[str, Known], said: str) -> Known | None:
    """Return the document whose digest begins with a text, or whose number it is; None if unclear.

    Two documents of one number are told apart by their digests alone.
    """
    found = [
        one
        for digest, one in known.items()
        if (len(said) >= 4 and digest.startswith(said)) or said == str(one.content.number)
    ]
    return found[0] if len(found) == 1 else None
