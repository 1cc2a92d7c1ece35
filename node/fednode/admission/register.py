"""The register of those who give leases: tokens, and the nodes that were enrolled.

tokens.json       for each token: its SHA-256, its name ("": any), the uses left, its end
enrolled.json     for each enrolled node: name, id, address, lease
revoked.txt       revocations, one line each
book.lock         held by a process while it reads and writes the other files
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from fednode.admission.calls import Guesses
from fednode.errors import AddressError, ConfigError, IdentityError, StateError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.enrol import CONTACTS_MAX
from fednode.identity.lease import (
    DAY_S,
    LEASE_DAYS,
    Sign,
    Statement,
    armour,
    disarm,
    nearly_over,
)
from fednode.settings.read import NAME, NAME_RULE
from fednode.storage.disk import Disk, alone, keep_private
from fednode.storage.files import put
from fednode.transports.address import parse

LOCK_FILE: Final = "book.lock"
ENROLLED_MAX: Final = 1024
TOKEN_BYTES: Final = 24
LINK_TOKEN_BYTES: Final = 12
"""A link is short, and few guesses are answered."""
WANTED: Final = "wanted"
REQUESTS_MAX: Final = 64
ELSEWHERE: Final = "folder with --state"


@dataclass(frozen=True, slots=True)
class Token:
    """A right to enrol.

    digest: SHA-256 of the token's text. name: the only name that it is good for; "": any. expires:
    seconds since the epoch; 0: no end. taken: the id that used the token of a link; "" before.
    again: it takes the name from the key that has it. approval: "" if none is needed; WANTED, or
    the id that the operator approved.
    """

    digest: str
    name: str
    uses: int
    expires: int = 0
    taken: str = ""
    again: bool = False
    approval: str = ""


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


class Knocked(IdentityError):
    """A key must be approved by the operator first."""


class StolenLink(IdentityError):
    """A second key shows the token of a link: one of the two has a copy."""


class Register:
    """The tokens and the enrolled nodes of one who gives leases, in a folder."""

    def __init__(
        self, folder: Path, mesh: str, sign: Sign, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the folder. sign: returns the proof of a statement."""
        self.folder, self.mesh, self._sign, self._clock = folder, mesh, sign, clock
        self.id_of: Callable[[str], str] = lambda _: ""
        """Returns the id that the mesh around this register gives a name; "" if none.

        That key renews its lease here, whoever signed the one before.
        """
        self._guesses = Guesses(clock)

    def token(self, name: str = "", uses: int = 1) -> str:
        """Create and return a token for a name, or for any name."""
        text = secrets.token_urlsafe(TOKEN_BYTES)
        with self._alone():
            self._put([*self._tokens(), Token(digest_of(text), name, uses)])
        return text

    def link_token(
        self, name: str, days: float, again: bool = False, approve: bool = False
    ) -> bytes:
        """Create and return the token of a link for a name; earlier links for it end.

        again: the link takes the name from the key that has it in the mesh. approve: a key that
        shows it only knocks, until the operator approves that key.
        """
        made = secrets.token_bytes(LINK_TOKEN_BYTES)
        with self._alone():
            self._drop(name)
            ends = int(self._clock() + days * DAY_S)
            approval = WANTED if approve else ""
            token = Token(digest_of(made.hex()), name, 1, ends, "", again, approval)
            self._put([*self._tokens(), token])
        return made

    def revoke_links(self, name: str) -> int:
        """End the links for a name that nobody used yet; return how many there were."""
        with self._alone():
            return self._drop(name)

    def _drop(self, name: str) -> int:
        knocking = [asdict(one) for one in self.requests() if one.name != name]
        self._write("requests.json", knocking)
        held = self._tokens()
        left = [token for token in held if token.name != name or token.taken]
        self._put(left)
        return len(held) - len(left)

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
        if all(node.id != id for node in self.enrolled()) and self.id_of(name) != id:
            self._require_token(token, name, id)
        if mesh != self.mesh:
            raise IdentityError(f"the token is of mesh {self.mesh!r}, not {mesh[:64]!r}")

    def _lease(self, id: str, name: str, address: str, token: str, dry: bool) -> bytes:
        held = {node.name: node for node in self.enrolled()}
        holder = held[name].id if name in held else self.id_of(name)
        freed = _fitting(self._tokens(), token, name)
        if holder not in {"", id} and not (name not in held and freed and freed.again):
            raise IdentityError(
                f"the name {name!r} belongs to another key: where that key is lost, the operator "
                "frees the name (`fednode invite --again`, or `fednode introducer free`)"
            )
        if name not in held:
            other = next((node.name for node in held.values() if node.id == id), "")
            if other:
                raise IdentityError(f"this key has the name {other!r}: a key has one name")
            if holder != id:
                self._require_approval(id, name, address, token, dry)
                self._spend(token, name, id, dry)
            if len(held) >= ENROLLED_MAX:
                raise IdentityError(f"{ENROLLED_MAX} nodes are enrolled, which is the limit")
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
        proof = self._sign(statement)
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
        moment = int(self._clock())
        proof = self._sign(
            Statement(kind="revocation", mesh=self.mesh, name=name, id=id, issued=moment)
        )
        with self._alone():
            lines = [*(armour(earlier) for earlier in self.revocations()), armour(proof)]
            put(self.folder / "revoked.txt", "".join(f"{line}\n" for line in lines), ELSEWHERE)
            left = [asdict(node) for node in self.enrolled() if node.id != id]
            self._write("enrolled.json", left)
        return armour(proof)

    def free(self, name: str) -> str:
        """Free a name for another key, and end its links; return a token for the name.

        Raise ConfigError if no key has the name.
        """
        with self._alone():
            held = self.enrolled()
            left = [node for node in held if node.name != name]
            if len(left) == len(held):
                raise ConfigError(f"--name is {name!r}, and no key has that name: it is free.")
            self._write("enrolled.json", [asdict(node) for node in left])
            self._put(
                [token for token in self._tokens() if not (token.taken and token.name == name)]
            )
        return self.token(name)

    def revocations(self) -> list[bytes]:
        """Return all revocations, oldest first."""
        path = self.folder / "revoked.txt"
        return [disarm(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _alone(self) -> AbstractContextManager[None]:
        return opened(self.folder)

    def _require_token(self, token: str, name: str, id: str) -> Token:
        """Return a token's record; raise IdentityError if it is not good for a name and a key."""
        if not token:
            raise IdentityError(
                "no token was given: ask for one (`fednode introducer token`) and set FEDNODE_TOKEN"
            )
        fitting = _fitting(self._tokens(), token, name)
        if fitting is None:
            raise IdentityError(
                f"the token is wrong, spent, or for another name than {name!r}: ask for a new one "
                "(`fednode invite`, or `fednode introducer token`)"
            )
        if fitting.taken not in {"", id}:
            raise StolenLink(
                f"the link for {name!r} was used before, by another key: ask for a new link, and "
                "tell its sender, because somebody else may have a copy of this link"
            )
        if fitting.expires and self._clock() > fitting.expires:
            day = time.strftime("%Y-%m-%d", time.gmtime(fitting.expires))
            raise IdentityError(f"the link for {name!r} ended on {day}: ask for a new link")
        return fitting

    def _spend(self, token: str, name: str, id: str, dry: bool) -> None:
        """Spend a use of a token; raise IdentityError if it is not good for a name and key.

        The token of a link is kept with the key that used it, so that another key is noticed.
        """
        spent = self._require_token(token, name, id)
        if dry:
            return
        rest = [other for other in self._tokens() if other != spent]
        if spent.expires:
            rest.append(replace(spent, uses=0, taken=id))
        elif spent.uses > 1:
            rest.append(replace(spent, uses=spent.uses - 1))
        self._put(rest)

    def _require_approval(self, id: str, name: str, address: str, token: str, dry: bool) -> None:
        """Note a request and raise Knocked, if the operator has not approved the key yet."""
        fitting = self._require_token(token, name, id)
        if dry or fitting.approval in {"", id}:
            return
        held = self.requests()
        first = next((one.id for one in held if one.name == name), fitting.approval)
        if first not in {WANTED, id}:
            raise StolenLink(
                f"another key knocked with the link for {name!r} before: tell its sender"
            )
        rest = [one for one in held if one.id != id][-REQUESTS_MAX:]
        self._write("requests.json", [asdict(one) for one in [*rest, Request(name, id, address)]])
        raise Knocked(
            f"the operator has to approve the key of {name!r} first: wait for word, then run the "
            "same command again"
        )

    def requests(self) -> list[Request]:
        """Return the keys that knocked and were neither approved nor refused."""
        return [Request(**entry) for entry in self._read("requests.json")]

    def settle(self, name: str, good: bool, id: str = "") -> Request:
        """Approve or refuse the key that knocked for a name; return its request.

        A refused link ends. Raise ConfigError if nobody knocked. id: the key that is meant.
        """
        with self._alone():
            held = self.requests()
            asked = next((one for one in held if one.name == name and id in {"", one.id}), None)
            if asked is None:
                names = ", ".join(one.name for one in held) or "nobody"
                raise ConfigError(f"Nobody knocks as {name!r}; {names} does.")
            self._write("requests.json", [asdict(one) for one in held if one.name != name])
            if not good:
                self._drop(name)
                return asked
            self._put(
                [
                    replace(one, approval=asked.id) if one.name == name and one.approval else one
                    for one in self._tokens()
                ]
            )
            return asked

    def _put(self, tokens: list[Token]) -> None:
        self._write("tokens.json", [asdict(token) for token in tokens])

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


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Make a register's folder if it is not there, and lock its files against other processes."""
    Disk().make_folder(folder)
    keep_private(folder)
    with alone(folder / LOCK_FILE):
        yield


def digest_of(token: str) -> str:
    """Return the form in which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def _fitting(held: Sequence[Token], token: str, name: str) -> Token | None:
    """Return the record of a token that is good for a name; None if there is none."""
    digest = digest_of(token)
    for candidate in held:
        if secrets.compare_digest(candidate.digest, digest) and candidate.name in {"", name}:
            return candidate
    return None
