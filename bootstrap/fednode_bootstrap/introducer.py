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
from fednode.identity.certificate import judged, mint
from fednode.identity.enrol import CONTACTS_MAX
from fednode.identity.identity import armour, disarm
from fednode.identity.lease import DAY_S, LEASE_DAYS, Statement, nearly_over
from fednode.settings.read import NAME, NAME_RULE
from fednode.storage.disk import Disk, alone
from fednode.storage.files import put
from fednode.transports.address import parse
from fednode.transports.grpc import GrpcTransport
from fednode.transports.tls import Tls
from fednode.wire.gen import introducer_pb2, introducer_pb2_grpc

KEY_FILE: Final = "mesh.key"
LOCK_FILE: Final = "book.lock"
ENROLLED_MAX: Final = 1024
QUIET_S: Final = 30.0
ASKED_MAX: Final = 20
"""Calls without a good token (wrong tokens, renewals) that one source may make in a minute."""
SOURCES_MAX: Final = 1024
VISIT_S: Final = 15.0
"""Longest duration of a connection; an enrolment is one call."""
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
        self._asked: dict[str, list[float]] = {}

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
            self._write("tokens.json", [asdict(one) for one in more])
        return text

    def enrol(
        self, id: str, mesh: str, name: str, address: str, token: str, source: str = ""
    ) -> bytes:
        """Return a lease on a name for a key; raise IdentityError with the reason of a refusal.

        A name belongs to the key that enrolled it. That key renews the lease without a token, until
        the operator frees the name or revokes the key. A key has one name. source: where the call
        comes from. A good token is accepted, however many bad calls came from its source.
        """
        if mesh != self.mesh:
            raise IdentityError(f"this introducer is of mesh {self.mesh!r}, not {mesh[:64]!r}")
        if not NAME.fullmatch(name):
            raise IdentityError(f"the name {name[:64]!r} is not allowed; {NAME_RULE}")
        try:
            parse(address)
        except AddressError as fault:
            raise IdentityError(str(fault)) from fault
        if _fitting(self._tokens(), token, name) is None:
            self._ask(source)
        with self._alone():
            return self._lease(id, name, address, token)

    def _lease(self, id: str, name: str, address: str, token: str) -> bytes:
        if any(leases.peek(proof).id == id for proof in self.revocations()):
            raise IdentityError(f"the key {id} was revoked")
        held = {one.name: one for one in self.enrolled()}
        if name not in held:
            other = next((one.name for one in held.values() if one.id == id), "")
            if other:
                raise IdentityError(f"this key has the name {other!r}: a key has one name")
            self._spend(token, name)
            if len(held) >= ENROLLED_MAX:
                raise IdentityError(f"{ENROLLED_MAX} nodes are enrolled, which is the limit")
        elif held[name].id != id:
            raise IdentityError(
                f"the name {name!r} belongs to another key, {held[name].id}: where that key is "
                "lost, the operator frees the name (`fednode introducer free`)"
            )
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
        held = [leases.peek(disarm(one.lease)) for one in self.enrolled()]
        return sum(not nearly_over(lease, self._clock()) for lease in held)

    def sample(self, but: str) -> list[Enrolled]:
        """Return some enrolled nodes, drawn at random, without the node called `but`."""
        others = [one for one in self.enrolled() if one.name != but]
        return SystemRandom().sample(others, min(CONTACTS_MAX, len(others)))

    def enrolled(self) -> list[Enrolled]:
        """Return all enrolled nodes, by name."""
        return [Enrolled(**one) for one in self._read("enrolled.json")]

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
            lines = [*(armour(one) for one in self.revocations()), armour(proof)]
            put(self.folder / "revoked.txt", "".join(f"{line}\n" for line in lines), ELSEWHERE)
            left = [asdict(one) for one in self.enrolled() if one.id != id]
            self._write("enrolled.json", left)
        return armour(proof)

    def free(self, name: str) -> str:
        """Free a name for another key; return a token for the name.

        Raise ConfigError if no key has the name.
        """
        with self._alone():
            held = self.enrolled()
            left = [one for one in held if one.name != name]
            if len(left) == len(held):
                raise ConfigError(f"--name is {name!r}, and no key has that name: it is free.")
            self._write("enrolled.json", [asdict(one) for one in left])
        return self.token(name)

    def revocations(self) -> list[bytes]:
        """Return all revocations, oldest first."""
        path = self.folder / "revoked.txt"
        return [disarm(line) for line in path.read_text().splitlines()] if path.exists() else []

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the files against other processes."""
        Disk().make_folder(self.folder)
        with alone(self.folder / LOCK_FILE):
            yield

    def _spend(self, token: str, name: str) -> None:
        if not token:
            raise IdentityError(
                "no token was given: ask for one (`fednode introducer token`) and set FEDNODE_TOKEN"
            )
        held = self._tokens()
        found = _fitting(held, token, name)
        if found is None:
            raise IdentityError(
                f"the token is wrong, spent, or for another name than {name!r}: ask for a new one "
                "(`fednode introducer token`)"
            )
        rest = [one for one in held if one != found]
        if found.uses > 1:
            rest.append(Token(found.digest, found.name, found.uses - 1))
        self._write("tokens.json", [asdict(one) for one in rest])

    def _ask(self, source: str) -> None:
        """Count a call without a good token; raise IdentityError if there were too many."""
        now = self._clock()
        lately = [moment for moment in self._asked.pop(source, []) if now - moment < 60]
        self._asked[source] = lately  # the most recent source is last
        if len(self._asked) > SOURCES_MAX:
            del self._asked[next(iter(self._asked))]
        if len(lately) >= ASKED_MAX:
            raise IdentityError("too many wrong tokens came from there; try again in a minute")
        lately.append(now)

    def _tokens(self) -> list[Token]:
        return [Token(**one) for one in self._read("tokens.json")]

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return []
        try:
            found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as fault:
            raise StateError(f"{path} is damaged ({fault}): restore it from a backup.") from fault
        return found

    def _write(self, name: str, content: list[dict[str, Any]]) -> None:
        put(self.folder / name, json.dumps(content, indent=1), ELSEWHERE)


def _fitting(held: Sequence[Token], token: str, name: str) -> Token | None:
    """Return the record of a token that is good for a name; None if there is none."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    for one in held:
        if secrets.compare_digest(one.digest, digest) and one.name in {"", name}:
            return one
    return None


class IntroducerService(introducer_pb2_grpc.IntroducerServicer):
    """Answer newcomers from the book, one at a time, because each answer may write."""

    def __init__(
        self,
        book: Roster,
        caller: Callable[[Any], str | None],
        source: Callable[[Any], str] = lambda _: "",
    ) -> None:
        self._book = book
        self._caller, self._source = caller, source
        self.called = asyncio.Event()

    async def Enrol(
        self, request: introducer_pb2.EnrolRequest, context: Any
    ) -> introducer_pb2.EnrolReply:
        """Give the caller's key a lease on a name."""
        id, book = self._caller(context) or "", self._book
        asked = request.mesh, request.name, request.address, request.token
        self.called.set()
        try:
            lease = book.enrol(id, *asked, self._source(context))
        except IdentityError as fault:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(fault))
        except StateError as fault:
            await context.abort(grpc.StatusCode.INTERNAL, str(fault))
        return introducer_pb2.EnrolReply(
            lease=lease,
            contacts=[
                introducer_pb2.Contact(
                    name=one.name, address=one.address, id=one.id, lease=disarm(one.lease)
                )
                for one in book.sample(request.name)
            ],
            revocations=book.revocations(),
        )


async def serve(
    book: Roster,
    listen: str,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    until: int = 0,
    quiet_s: float = QUIET_S,
) -> None:
    """Serve newcomers until stopped; raise AddressError if the address cannot be listened on.

    until: if not 0, also stop once that many nodes hold leases that they need not renew yet and no
    node called for quiet_s. A node that did not get its answer calls again within that time.
    """

    def judge(certificate: bytes, who: str) -> tuple[str, str]:
        return judged(certificate, lambda _: "")  # any key may call; the token decides

    shown: list[tuple[float, Any]] = []

    def credentials() -> Any:
        now = time.time()
        if not shown or now - shown[0][0] > DAY_S:  # one certificate for all connections of a day
            shown[:] = [(now, mint(book.key, "introducer", b"", now))]
        return book.key, shown[0][1]

    async def no_frames(frame: bytes, caller: str) -> bytes:
        return b""

    transport = GrpcTransport(Tls(credentials, judge, lambda *_: None, VISIT_S))
    service = IntroducerService(book, transport.caller, transport.source)
    transport.add_service(
        lambda server: introducer_pb2_grpc.add_IntroducerServicer_to_server(service, server)
    )
    try:
        ready(await transport.listen(listen, no_frames))
        enough = _enough(book, service, until, quiet_s) if until else asyncio.Event().wait()
        ends = [asyncio.ensure_future(one) for one in (stop.wait(), enough)]
        ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for one in ends:
            one.cancel()
        for one in ended:
            one.result()
    finally:
        await transport.close()


async def _enough(book: Roster, service: IntroducerService, until: int, quiet_s: float) -> None:
    """Return once `until` nodes are settled and no node has called for quiet_s."""
    while True:
        service.called.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(quiet_s):
                await service.called.wait()
                continue
        if book.settled() >= until:
            return
