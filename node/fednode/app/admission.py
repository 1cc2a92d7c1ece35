"""A node that admits newcomers on its own port: its register, its right, and what it says.

    admission/        a folder of the state directory, with the files of a register
    admission/right   the proof that this node's key may sign leases (fednode.identity.lease)

Newcomers reach the service alone, through a gate of their own (fednode.transports.tls).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from random import SystemRandom
from typing import Final

from fednode.admission.register import Register
from fednode.admission.service import (
    VISIT_MESSAGE_BYTES,
    VISIT_S,
    VISIT_STREAMS,
    IntroducerService,
    Mesh,
    anyone,
    enrolled,
)
from fednode.app.plan import NodePlan
from fednode.core.events import Record
from fednode.core.members.table import GONE, Member
from fednode.core.types import Update
from fednode.errors import IdentityError, StateError
from fednode.freed import trim
from fednode.identity import lease as leases
from fednode.identity.certificate import shown_by
from fednode.identity.enrol import CONTACTS_MAX
from fednode.identity.identity import Identity
from fednode.identity.lease import Statement, armour, disarm, sponsored
from fednode.identity.trust import Trust
from fednode.observe.present import ASKS
from fednode.observe.telemetry import Refusals
from fednode.runtime.driver import Driver
from fednode.settings.agreed import shared
from fednode.storage.files import put
from fednode.transports.address import RELAY
from fednode.transports.grpc import GrpcTransport
from fednode.transports.tls import Tls
from fednode.wire.gen import introducer_pb2

FOLDER: Final = "admission"
RIGHT: Final = "right"
NOBODY: Final = "fednode"
"""The name in the certificate that newcomers see."""
MEMBERS_SHOWN: Final = 64
NEWCOMERS_MAX: Final = 24
"""Newcomers that are served at a time; an answer takes a moment, and each costs some 100 KiB."""
AGAIN_S: Final = 600.0
"""How long relays let newcomers call after the last open link was used."""
CROWD: Final = 16
"""After so many newcomers the memory that they needed is given back."""
TRIM_S: Final = 10.0
"""How long after a crowd came: a flood makes no more work than this for the node."""
LOG: Final = logging.getLogger("fednode")


def right_of(state: Path) -> bytes:
    """Return the proof that the node of a state directory may admit; b"" if it may not."""
    path = state / FOLDER / RIGHT
    try:
        right = disarm(path.read_text(encoding="ascii")) if path.exists() else b""
        if right:
            leases.peek(right)
    except (OSError, ValueError, IdentityError) as fault:
        raise StateError(
            f"{path} is damaged ({fault}): restore it from a backup, or run `fednode sponsor` with "
            "the mesh key again."
        ) from fault
    return right


def keep_right(state: Path, right: bytes) -> None:
    """Store the proof that the node of a state directory may admit."""
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / RIGHT, armour(right) + "\n", "state directory")


def register_of(state: Path, identity: Identity) -> Register:
    """Return the register of a node that may admit; its right is read whenever it signs."""

    def sign(statement: Statement) -> bytes:
        return sponsored(identity.key, right_of(state), identity.clock)(statement)

    return Register(state / FOLDER, identity.mesh, sign)


class Admission:
    """The admission of newcomers at one node, beside its transport.

    plan: what the node goes by now (fednode.app.network.NodeNetwork).
    """

    def __init__(
        self, plan: NodePlan, identity: Identity, trust: Trust, refusals: Refusals
    ) -> None:
        self.plan, self._identity, self._trust = plan, identity, trust
        self._refusals = refusals
        self._node: Driver | None = None
        self._backbone, self._used_at = "", float("-inf")
        self.register = register_of(plan.state, identity)
        self.register.id_of = self._id_of
        self.register.is_revoked = trust.is_revoked
        self.tls = Tls(shown_by(identity.key, NOBODY), anyone, lambda *_: None, VISIT_S)
        self.right = right_of(plan.state)
        self.given = asyncio.Event()
        """Is set when the node gets the right to admit, with which it renews its own lease."""
        self.tls.visitors = NEWCOMERS_MAX
        self.tls.answers = lambda: bool(self.right)
        self.tls.visited = self._count
        self._came, self._trimming = 0, asyncio.Event()
        self._trimmer: asyncio.Task[None] | None = None
        self._transport = GrpcTransport(self.tls, VISIT_STREAMS, VISIT_MESSAGE_BYTES)
        mesh = Mesh(
            contacts=self._contacts,
            revocations=trust.revocations,
            offer=self._offer,
            met=self._meet,
            asks=self._say_who_asks,
        )
        service = IntroducerService(
            self.register,
            self._transport.caller,
            self._transport.source,
            LOG.info,
            mesh,
            self._warn,
        )
        self._transport.add_service(service.register)

    async def open(self) -> None:
        """Answer newcomers from now on, behind the node's own gate."""
        self.remind()
        await self._transport.listen(RELAY, None)
        self._trimmer = asyncio.create_task(self._trim())

    def remind(self) -> None:
        """Warn the operator if the right to admit ends soon, because leases end with it."""
        right = leases.peek(right_of(self.plan.state)) if self.right else None
        if right is not None and leases.nearly_over(right, self._identity.clock()):
            day = leases.day(right.expires)
            text = (
                f"{right.name} may admit sites and renew leases until {day} only: on the founder's"
            )
            remedy = f"{text} machine run `fednode sponsor {right.name}`"
            self._refusals.show(Record("admission.ends", remedy, "warning"))

    async def close(self) -> None:
        """Answer nobody any more. Idempotent."""
        if self._trimmer is not None:
            self._trimmer.cancel()
        await self._transport.close()

    def attach(self, node: Driver, backbone: str) -> None:
        """Take the members from a node that runs. backbone: the fingerprint of its model."""
        self._node, self._backbone = node, backbone

    def take_right(self, proof: bytes) -> str:
        """Take the right to admit that the mesh key gave to this node; return what it does now.

        Raise IdentityError if the proof is of another node or key.
        """
        mesh_key, own = self._trust.mesh_key, self._identity
        if mesh_key is None:
            raise IdentityError("peers.yaml names no mesh_key, so nobody is a sponsor")
        given = leases.read(proof, mesh_key)
        fault = given.fault(own.mesh, own.clock())
        if given.kind != "sponsor" or (given.name, given.id) != (own.name, own.id) or fault:
            raise IdentityError(fault or f"this {given.kind} is no right of {own.name!r} to admit")
        keep_right(self.plan.state, proof)
        self.right = proof
        self.given.set()
        day = leases.day(given.expires)
        return f"{own.name} admits newcomers until {day}"

    def invites(self) -> bool:
        """Tell whether a newcomer may call now: a link is open, or was used a moment ago.

        The site that used it may ask again, if the answer was lost.
        """
        lately = time.monotonic() - self._used_at < AGAIN_S
        try:
            return bool(self.right) and (lately or self.register.tokens.is_link_open())
        except StateError:
            return False  # whoever calls is told

    async def own_lease(self, address: str) -> bytes:
        """Return a new lease of this node itself."""
        own = self._identity
        return await self.register.admit(own.id, own.mesh, own.name, address, "")

    def members(self) -> tuple[Member, ...]:
        """Return the members that live, as far as this node knows; also under other settings."""
        return tuple(member for member in self.known() if member.answers)

    def known(self) -> tuple[Member, ...]:
        """Return all members, as far as this node knows."""
        return () if self._node is None else tuple(self._node.view().peers)

    def remembered(self) -> list[Update]:
        """Return the members that this node admitted, to greet them after a restart."""
        for proof in self.register.revocations():
            with contextlib.suppress(IdentityError):  # this node's own key may be revoked by now
                self._trust.take_revocation(proof)
        known = [
            Update(node.name, "alive", 0, node.address, node.id, disarm(node.lease))
            for node in self.register.enrolled()
            if node.id != self._identity.id
        ]
        return list(self._trust.believed("", known))

    def _id_of(self, name: str) -> str:
        return self._identity.id if name == self._identity.name else self._trust.id_of(name)

    def _meet(self, new: introducer_pb2.Contact) -> None:
        """Let the node greet a newcomer, so that it can be asked whether it reaches it."""
        self._used_at = time.monotonic()
        if not any(member.id and member.name != new.name for member in self.known()):
            LOG.info(
                "%s is the first site that joined. Let it admit sites and renew leases, too, so "
                "that the mesh outlives this machine: fednode sponsor %s",
                *(new.name, new.name),
            )
        update = Update(new.name, "alive", 0, new.address, new.id, bytes(new.lease))
        news = self._trust.believed("", [update])
        if self._node is not None:
            self._node.tell(news)

    def _count(self) -> None:
        self._came += 1
        if self._came >= CROWD:
            self._trimming.set()

    async def _trim(self) -> None:
        """Give memory back to the system after a crowd of newcomers, which glibc would keep."""
        while True:
            await self._trimming.wait()
            await asyncio.sleep(TRIM_S)
            self._came = 0
            self._trimming.clear()
            await asyncio.to_thread(trim)

    def _warn(self, text: str) -> None:
        self._refusals.show(Record("admission.copied", text, "warning"))

    def _say_who_asks(self, name: str, text: str) -> None:
        self._refusals.show(Record(ASKS, text, "warning", {"peer": name}))

    def _contacts(self, but: str) -> Iterable[introducer_pb2.Contact]:
        """Return this node, and some others that live, drawn at random."""
        own = introducer_pb2.Contact(
            name=self.plan.name,
            address=self.plan.address,
            id=self._identity.id,
            lease=self._identity.proof,
        )
        if self._node is None:
            before = [one for one in enrolled(self.register, but) if one.id != own.id]
            return [own, *before][:CONTACTS_MAX]
        live = [
            introducer_pb2.Contact(
                name=member.name, address=member.address, id=member.id, lease=member.proof
            )
            for member in self.members()
            if member.proof and member.address and member.name != but
        ]
        return [own, *SystemRandom().sample(live, min(CONTACTS_MAX - 1, len(live)))]

    def _offer(self) -> introducer_pb2.JudgeReply:
        if self._node is None:
            revoked, listed = self._trust.is_revoked, self.register.enrolled()
            others = [one.name for one in listed if not revoked(one.id)]
        else:
            others = [one.name for one in self._node.view().peers if one.state not in GONE]
        members = [name for name in others if name != self.plan.name]
        model = self.plan.settings.model.title
        known = f", fingerprint {self._backbone[:12]}" if self._backbone else ""
        return introducer_pb2.JudgeReply(
            sponsor=right_of(self.plan.state),
            settings=shared(self.plan.settings).encode(),
            members=[self.plan.name, *members][:MEMBERS_SHOWN],
            model=model + known,
        )


def admission_of(
    plan: NodePlan, identity: Identity, trust: Trust, refusals: Refusals
) -> Admission | None:
    """Return the admission of newcomers, which may be shut; None in a mesh that does not grow."""
    if not plan.peers.sponsors:
        return None
    return Admission(plan, identity, trust, refusals)
