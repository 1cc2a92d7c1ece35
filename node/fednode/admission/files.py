"""The files of a register: records as JSON, with a lock against other processes.

tokens.json       for each token: its SHA-256, its name ("": any), the uses left, its end; also the
                  newest tokens that ended early, so that they are refused with the reason
requests.json     for each key that knocked and waits for the operator: name, id, address
enrolled.json     for each enrolled node: name, id, address, lease
revoked.txt       revocations, one line each
book.lock         held by a process while it reads and writes the other files
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from fednode.errors import IdentityError, StateError
from fednode.identity.lease import armour, disarm, peek
from fednode.storage.disk import Disk, alone, keep_private
from fednode.storage.files import put

LOCK_FILE: Final = "book.lock"
ELSEWHERE: Final = "folder with --state"


@dataclass(frozen=True, slots=True)
class Token:
    """A right to enrol.

    digest: SHA-256 of the token's text. name: the only name that it is good for; "": any. expires:
    seconds since the epoch; 0: no end. taken: the id that used the token of a link; "" before.
    again: it takes the name from the key that has it. approval: "" if none is needed; WANTED, or
    the id that the operator approved. ended: why nobody can use it any more, a key of
    WHY_ENDED (fednode.admission.tokens); "" if a key can.
    """

    digest: str
    name: str
    uses: int
    expires: int = 0
    taken: str = ""
    again: bool = False
    approval: str = ""
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A key that knocked with a link whose use the operator approves first."""

    name: str
    id: str
    address: str


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A node that was enrolled."""

    name: str
    id: str
    address: str
    lease: str


Record = TypeVar("Record", Token, Request, Enrolled)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a register, in a folder; a missing file holds nothing."""

    folder: Path

    def alone(self) -> AbstractContextManager[None]:
        """Hold the lock; whoever reads and then writes holds it."""
        return opened(self.folder)

    def tokens(self) -> list[Token]:
        """Return all tokens."""
        return self._read(Token, "tokens.json")

    def put_tokens(self, tokens: Sequence[Token]) -> None:
        """Store all tokens."""
        self._write("tokens.json", [asdict(token) for token in tokens])

    def requests(self) -> list[Request]:
        """Return the keys that knocked and were neither approved nor refused."""
        return self._read(Request, "requests.json")

    def put_requests(self, requests: Sequence[Request]) -> None:
        """Store the keys that knocked."""
        self._write("requests.json", [asdict(request) for request in requests])

    def enrolled(self) -> list[Enrolled]:
        """Return all enrolled nodes, by name."""
        nodes = self._read(Enrolled, "enrolled.json")
        try:
            for node in nodes:
                disarm(node.lease)
        except IdentityError as fault:
            raise _damaged(self.folder / "enrolled.json", fault) from fault
        return nodes

    def put_enrolled(self, nodes: Sequence[Enrolled]) -> None:
        """Store all enrolled nodes, by name."""
        named = sorted(nodes, key=lambda node: node.name)
        self._write("enrolled.json", [asdict(node) for node in named])

    def revocations(self) -> list[bytes]:
        """Return the proofs of all revocations, oldest first; raise StateError for other lines."""
        path = self.folder / "revoked.txt"
        try:
            lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
            proofs = [disarm(line) for line in lines]
            for proof in proofs:
                peek(proof)
        except (OSError, ValueError, IdentityError) as fault:
            raise _damaged(path, fault) from fault
        return proofs

    def add_revocation(self, proof: bytes) -> None:
        """Store the proof of a revocation behind the others."""
        lines = [armour(held) for held in (*self.revocations(), proof)]
        put(self.folder / "revoked.txt", "".join(f"{line}\n" for line in lines), ELSEWHERE)

    def _read(self, kind: type[Record], name: str) -> list[Record]:
        """Return the records in a file; raise StateError if it is damaged or of a newer version.

        What an older version does not know would be lost when it writes the file again.
        """
        path, known = self.folder / name, {one.name: str(one.type) for one in fields(kind)}
        if not path.exists():
            return []
        try:
            entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
            new = {key for entry in entries for key, _ in entry.items()} - known.keys()
            records = [] if new else [kind(**entry) for entry in entries]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as fault:
            raise _damaged(path, fault) from fault
        if new:
            raise StateError(
                f"{path} was written by a newer version of fednode (it holds "
                f"{', '.join(sorted(new))}): restart this node with that version."
            )
        for record in records:
            for key, value in asdict(record).items():
                if type(value).__name__ != known[key]:
                    raise _damaged(path, f"{key} is a {type(value).__name__}, not {known[key]}")
        return records

    def _write(self, name: str, content: list[dict[str, Any]]) -> None:
        put(self.folder / name, json.dumps(content, indent=1), ELSEWHERE)


def _damaged(path: Path, fault: object) -> StateError:
    return StateError(f"{path} is damaged ({fault}): restore it from a backup.")


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Make a register's folder if it is not there, and lock its files against other processes."""
    Disk().make_folder(folder)
    keep_private(folder)
    with alone(folder / LOCK_FILE):
        yield
