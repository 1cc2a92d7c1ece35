"""The introducer: it gives leases on names of a mesh to keys, in exchange for tokens.

    mesh.key          the mesh key, which signs
    tokens.json       for each token: its SHA-256, its name ("": any), and the uses left
    enrolled.json     for each enrolled node: name, id, address, lease
    revoked.txt       revocations, one line each
    book.lock         held by a process while it reads and writes the other files

A node calls the introducer when it joins, and again when its lease is nearly over. The introducer
takes no part in the mesh, holds no prompts, and may be off while no node needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

import grpc

from fednode.errors import AddressError, ConfigError, IdentityError, StateError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.enrol import CONTACTS_MAX
from fednode.identity.identity import armour, disarm
from fednode.identity.lease import DAY_S, LEASE_DAYS, Statement, nearly_over
from fednode.settings.read import NAME, NAME_RULE
from fednode.storage.disk import Disk, alone, keep_private
from fednode.storage.files import put
from fednode.transports.address import parse
from fednode.wire.gen import introducer_pb2, introducer_pb2_grpc
from fednode_bootstrap.calls import CallLog, Guesses

KEY_FILE: Final = "mesh.key"
LOCK_FILE: Final = "book.lock"
ENROLLED_MAX: Final = 1024
TOKEN_BYTES: Final = 24
ELSEWHERE: Final = "folder with --state"


@dataclass(frozen=True, slots=True)
class Token:
    """A right to enrol.

    digest: SHA-256 of the token's text. name: the only name that it is good for; "": any.
    """

    digest: str
    name: str
    uses: int


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A node that was enrolled."""

    name: str
    id: str
    address: str
    lease: str


class Roster:
    """The state of an introducer, in its folder."""

    def __init__(self, folder: Path, mesh: str, clock: Callable[[], float] = time.time) -> None:
        """Open the folder; create the mesh key if there is none."""
        self.folder, self.mesh, self._clock = folder, mesh, clock
        path = folder / KEY_FILE
        with self._alone():
            self.key = keys.load(path) if path.exists() else keys.create(path)
        self._guesses = Guesses(clock)

    @property
    def mesh_key(self) -> str:
        """The public mesh key, for peers.yaml."""
        return keys.written(self.key.public_key())

    def token(self, name: str = "", uses: int = 1) -> str:
        """Create and return a token for a name, or for any name."""
        text = secrets.token_urlsafe(TOKEN_BYTES)
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._alone():
            more = [*self._tokens(), Token(digest, name, uses)]
            self._write("tokens.json", [asdict(issued) for issued in more])
        return text

    def enrol(
        self,
        id: str,
        mesh: str,
        name: str,
        address: str,
        token: str,
        source: str = "",
        dry: bool = False,
    ) -> bytes:
        """Return a lease on a name for a key; raise IdentityError with the reason of a refusal.

        A name belongs to the key that enrolled it. That key renews the lease without a token, until
        the operator frees the name or revokes the key. A key has one name. A caller without a good
        token or an enrolled key learns nothing of the mesh, its names and its keys. source: where
        the call comes from. A good token is accepted, however many bad calls came from its source.
        dry: only judge the call; give no lease (return b""), and spend no token.
        """
        if not NAME.fullmatch(name):
            raise IdentityError(f"the name {name[:64]!r} is not allowed; {NAME_RULE}")
        try:
            parse(address)
        except AddressError as fault:
            raise IdentityError(str(fault)) from fault
        if _fitting(self._tokens(), token, name) is None:
            self._guesses.add(source)
        with self._alone():
            self._require_right(id, mesh, name, token)
            return self._lease(id, name, address, token, dry)

    def _require_right(self, id: str, mesh: str, name: str, token: str) -> None:
        """Raise IdentityError for a key that was revoked, a stranger, and a call to another mesh.

        A stranger has no good token and no enrolled key; its answer is the same whatever it asks.
        """
        if any(leases.peek(proof).id == id for proof in self.revocations()):
            raise IdentityError(f"the key {id} was revoked")
        if all(node.id != id for node in self.enrolled()):
            self._require_token(token, name)
        if mesh != self.mesh:
            raise IdentityError(f"this introducer is of mesh {self.mesh!r}, not {mesh[:64]!r}")

    def _lease(self, id: str, name: str, address: str, token: str, dry: bool) -> bytes:
        held = {node.name: node for node in self.enrolled()}
        if name not in held:
            other = next((node.name for node in held.values() if node.id == id), "")
            if other:
                raise IdentityError(f"this key has the name {other!r}: a key has one name")
            self._spend(token, name, dry)
            if len(held) >= ENROLLED_MAX:
                raise IdentityError(f"{ENROLLED_MAX} nodes are enrolled, which is the limit")
        elif held[name].id != id:
            raise IdentityError(
                f"the name {name!r} belongs to another key: where that key is lost, the operator "
                "frees the name (`fednode introducer free`)"
            )
        if dry:
            return b""
        now = int(self._clock())
        statement = Statement(
            kind="lease",
            mesh=self.mesh,
            name=name,
            id=id,
            issued=now,
            expires=now + LEASE_DAYS * DAY_S,
        )
        proof = leases.sign(self.key, statement)
        held[name] = Enrolled(name, id, address, armour(proof))
        self._write("enrolled.json", [asdict(held[key]) for key in sorted(held)])
        return proof

    def settled(self) -> int:
        """Return the number of nodes with a lease that they need not renew yet."""
        held = [leases.peek(disarm(node.lease)) for node in self.enrolled()]
        return sum(not nearly_over(lease, self._clock()) for lease in held)

    def sample(self, but: str) -> list[Enrolled]:
        """Return some enrolled nodes, drawn at random, without the node called `but`."""
        others = [node for node in self.enrolled() if node.name != but]
        return SystemRandom().sample(others, min(CONTACTS_MAX, len(others)))

    def enrolled(self) -> list[Enrolled]:
        """Return all enrolled nodes, by name."""
        return [Enrolled(**entry) for entry in self._read("enrolled.json")]

    def revoke(self, name: str, id: str) -> str:
        """Revoke a key; return the proof as a line for peers.yaml."""
        keys.read_group(id)
        proof = leases.sign(
            self.key,
            Statement(
                kind="revocation", mesh=self.mesh, name=name, id=id, issued=int(self._clock())
            ),
        )
        with self._alone():
            lines = [*(armour(earlier) for earlier in self.revocations()), armour(proof)]
            put(self.folder / "revoked.txt", "".join(f"{line}\n" for line in lines), ELSEWHERE)
            left = [asdict(node) for node in self.enrolled() if node.id != id]
            self._write("enrolled.json", left)
        return armour(proof)

    def free(self, name: str) -> str:
        """Free a name for another key; return a token for the name.

        Raise ConfigError if no key has the name.
        """
        with self._alone():
            held = self.enrolled()
            left = [node for node in held if node.name != name]
            if len(left) == len(held):
                raise ConfigError(f"--name is {name!r}, and no key has that name: it is free.")
            self._write("enrolled.json", [asdict(node) for node in left])
        return self.token(name)

    def revocations(self) -> list[bytes]:
        """Return all revocations, oldest first."""
        path = self.folder / "revoked.txt"
        return [disarm(line) for line in path.read_text().splitlines()] if path.exists() else []

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the files against other processes."""
        Disk().make_folder(self.folder)
        keep_private(self.folder)
        with alone(self.folder / LOCK_FILE):
            yield

    def _require_token(self, token: str, name: str) -> Token:
        """Return the record of a token; raise IdentityError if it is not good for a name."""
        if not token:
            raise IdentityError(
                "no token was given: ask for one (`fednode introducer token`) and set FEDNODE_TOKEN"
            )
        fitting = _fitting(self._tokens(), token, name)
        if fitting is None:
            raise IdentityError(
                f"the token is wrong, spent, or for another name than {name!r}: ask for a new one "
                "(`fednode introducer token`)"
            )
        return fitting

    def _spend(self, token: str, name: str, dry: bool) -> None:
        """Spend a use of a token; raise IdentityError if it is not good for a name."""
        spent = self._require_token(token, name)
        rest = [other for other in self._tokens() if other != spent]
        if spent.uses > 1:
            rest.append(Token(spent.digest, spent.name, spent.uses - 1))
        if not dry:
            self._write("tokens.json", [asdict(other) for other in rest])

    def _tokens(self) -> list[Token]:
        return [Token(**entry) for entry in self._read("tokens.json")]

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return []
        try:
            entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as fault:
            raise StateError(f"{path} is damaged ({fault}): restore it from a backup.") from fault
        return entries

    def _write(self, name: str, content: list[dict[str, Any]]) -> None:
        put(self.folder / name, json.dumps(content, indent=1), ELSEWHERE)


def _fitting(held: Sequence[Token], token: str, name: str) -> Token | None:
    """Return the record of a token that is good for a name; None if there is none."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    for candidate in held:
        if secrets.compare_digest(candidate.digest, digest) and candidate.name in {"", name}:
            return candidate
    return None


class IntroducerService(introducer_pb2_grpc.IntroducerServicer):
    """Answer newcomers from the book, one at a time, because each answer may write."""

    def __init__(
        self,
        book: Roster,
        caller: Callable[[Any], str | None],
        source: Callable[[Any], str] = lambda _: "",
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Set up. say: shows a line of the log, with the counts of all calls so far."""
        self._book, self._log = book, CallLog(say)
        self._caller, self._source = caller, source
        self.called = asyncio.Event()

    async def Enrol(
        self, request: introducer_pb2.EnrolRequest, context: Any
    ) -> introducer_pb2.EnrolReply:
        """Give the caller's key a lease on a name."""
        book = self._book
        self.called.set()
        lease = await self._given(request, context, dry=False)
        return introducer_pb2.EnrolReply(
            lease=lease,
            contacts=[
                introducer_pb2.Contact(
                    name=node.name, address=node.address, id=node.id, lease=disarm(node.lease)
                )
                for node in book.sample(request.name)
            ],
            revocations=book.revocations(),
        )

    async def Judge(
        self, request: introducer_pb2.EnrolRequest, context: Any
    ) -> introducer_pb2.JudgeReply:
        """Say whether the caller's key would get a lease on a name."""
        await self._given(request, context, dry=True)
        return introducer_pb2.JudgeReply()

    async def _given(self, request: introducer_pb2.EnrolRequest, context: Any, dry: bool) -> bytes:
        """Return the book's answer to a call, and log it; end the call if the book refuses it."""
        id, source, book = self._caller(context) or "", self._source(context), self._book
        asked = request.mesh, request.name, request.address, request.token
        known = any(node.id == id for node in book.enrolled())
        try:
            lease = book.enrol(id, *asked, source, dry)
        except IdentityError as fault:
            self._log.add("refused", f"refused {request.name[:64]!r} ({source}): {fault}")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(fault))
        except StateError as fault:
            self._log.add("failed", f"failed at {request.name[:64]!r}: {fault}")
            await context.abort(grpc.StatusCode.INTERNAL, str(fault))
        what = "checked" if dry else "renewed" if known else "enrolled"
        self._log.add(
            what, f"{what} {request.name!r} at {request.address} ({source}), key {id[:12]}"
        )
        return lease
