"""The register of those who give leases: which key has which name, and who was revoked.

Its tokens are in fednode.admission.tokens, its files in fednode.admission.files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeVar

from fednode.admission.calls import Guesses
from fednode.admission.files import Enrolled, Files
from fednode.admission.tokens import REPLACED, Tokens
from fednode.errors import AddressError, ConfigError, IdentityError
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
from fednode.transports.address import parse

ENROLLED_MAX: Final = 1024
Returned = TypeVar("Returned")


class Register:
    """The tokens and the enrolled nodes of one who gives leases, in a folder."""

    def __init__(
        self, folder: Path, mesh: str, sign: Sign, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the folder. sign: returns the proof of a statement."""
        self.mesh, self._sign, self._clock = mesh, sign, clock
        self._files = Files(folder)
        self.tokens = Tokens(self._files, clock)
        self.id_of: Callable[[str], str] = lambda _: ""
        """Returns the id that the mesh around this register gives a name; "" if none.

        That key renews its lease here, whoever signed the one before.
        """
        self.is_revoked: Callable[[str], bool] = lambda _: False
        """Tells whether a key was revoked in the mesh around this register."""
        self._guesses = Guesses(clock)
        self._thread = ThreadPoolExecutor(1, "register")

    async def apart(self, call: Callable[..., Returned], *given: Any) -> Returned:
        """Make a call of the register on its thread: it waits for its lock and for the disk."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(call, *given))

    async def admit(self, id: str, mesh: str, name: str, *call: Any) -> bytes:
        """Do what `enrol` does on the register's thread; the mesh is asked here, on the loop."""
        enrol = partial(self.enrol, known=(self.id_of(name), self.is_revoked(id)))
        return await self.apart(enrol, id, mesh, name, *call)

    def enrol(
        self,
        id: str,
        mesh: str,
        name: str,
        address: str,
        token: str,
        source: str = "",
        dry: bool = False,
        known: tuple[str, bool] | None = None,
    ) -> bytes:
        """Return a lease on a name for a key; raise IdentityError with the reason of a refusal.

        A name belongs to the key that enrolled it. That key renews the lease without a token, until
        the operator frees the name or revokes the key. A key has one name. A caller without a good
        token or an enrolled key learns nothing of the mesh, its names and its keys. source: where
        the call comes from. A good token is accepted, however many bad calls came from its source.
        dry: only judge the call; give no lease (return b""), and spend no token. known: the id that
        the mesh gives the name, and whether the mesh revoked this key; None: the mesh is asked.
        """
        holder, is_revoked = known or (self.id_of(name), self.is_revoked(id))
        if not NAME.fullmatch(name):
            raise IdentityError(f"the name {name[:64]!r} is not allowed; {NAME_RULE}")
        try:
            parse(address)
        except AddressError as fault:
            raise IdentityError(str(fault)) from fault
        shown = self.tokens.fitting(token, name)
        if shown is None or shown.ended:
            self._guesses.add(source)
        with self._files.alone():
            if is_revoked or id in {leases.peek(proof).id for proof in self.revocations()}:
                raise IdentityError(f"the key {id} was revoked")
            if self.tokens.is_given_again(name):
                holder = ""  # that key was lost
            self._require_right(id, mesh, name, token, holder)
            return self._lease(id, name, address, token, dry, holder)

    def _require_right(self, id: str, mesh: str, name: str, token: str, holder: str) -> None:
        """Raise IdentityError for a stranger, and for a call to another mesh.

        A stranger has no good token and no enrolled key; its answer is the same whatever it asks.
        """
        if all(node.id != id for node in self.enrolled()) and holder != id:
            self.tokens.require(token, name, id)
        if mesh != self.mesh:
            raise IdentityError(f"the token is of mesh {self.mesh!r}, not {mesh[:64]!r}")

    def _lease(self, id: str, name: str, address: str, token: str, dry: bool, holder: str) -> bytes:
        held = {node.name: node for node in self.enrolled()}
        holder = held[name].id if name in held else holder
        if holder not in {"", id}:
            raise IdentityError(
                f"the name {name!r} belongs to another key: where that key is lost, the operator "
                "frees the name (`fednode invite --again`, or `fednode introducer free`)"
            )
        if name not in held:
            other = next((node.name for node in held.values() if node.id == id), "")
            if other:
                raise IdentityError(f"this key has the name {other!r}: a key has one name")
            if holder != id:
                self.tokens.require_approval(id, name, address, token, dry)
                self.tokens.spend(token, name, id, dry)
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
        self._files.put_enrolled(list(held.values()))
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
        return self._files.enrolled()

    def revoke(self, name: str, id: str, stay: Sequence[bytes] = ()) -> str:
        """Revoke a key; return the proof as a line for peers.yaml.

        stay: leases that the key gave as a sponsor and that hold all the same, at most STAY_MAX.
        """
        keys.read_group(id)
        digests = "".join(map(leases.digest, stay[: leases.STAY_MAX]))
        moment = int(self._clock())
        revocation = Statement(
            kind="revocation", mesh=self.mesh, name=name, id=id, issued=moment, stay=digests
        )
        proof = self._sign(revocation)
        with self._files.alone():
            self._files.add_revocation(proof)
            self._files.put_enrolled([node for node in self.enrolled() if node.id != id])
        return armour(proof)

    def free(self, name: str) -> str:
        """Free a name for another key, and end its links; return a token for the name.

        Raise ConfigError if no key has the name.
        """
        with self._files.alone():
            if not self._forget(name):
                raise ConfigError(f"--name is {name!r}, and no key has that name: it is free.")
            self.tokens.end(name, REPLACED, used=True)
        return self.tokens.new(name)

    def give_again(self, name: str, days: float, approve: bool = False) -> bytes:
        """Free a name for another key; return the token of a link for it, and end all others."""
        with self._files.alone():
            self._forget(name)
            return self.tokens.add_link(name, days, True, approve)

    def _forget(self, name: str) -> bool:
        """Forget the key that has a name; tell whether there was one."""
        held = self.enrolled()
        left = [node for node in held if node.name != name]
        self._files.put_enrolled(left)
        return len(left) < len(held)

    def revocations(self) -> list[bytes]:
        """Return all revocations, oldest first."""
        return self._files.revocations()
