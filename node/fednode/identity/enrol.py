"""Get a lease from one who gives leases, and the addresses of some members of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from fednode.core import foreign
from fednode.core.types import Update
from fednode.errors import FednodeError, IdentityError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificate import judged
from fednode.identity.identity import Identity
from fednode.transports.address import RELAY
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from fednode.transports.opening import Connect, RelayAt, open_directly
from fednode.transports.session import ADMITTING, H2
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from fednode.wire.gen import introducer_pb2, introducer_pb2_grpc

TIMEOUT_S: Final = 10.0
CONTACTS_MAX: Final = 8
NOT_IT: Final = "its key is not"
"""How the sentence begins that says why the key of what answers is not the one to ask."""


OPEN: Final = " A relay lets newcomers in while that node runs and a link of it is open."


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The reply of one who gives leases: members to contact first, and revocations."""

    contacts: tuple[Update, ...]
    revocations: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Admitter:
    """One who gives leases. title: the word for it. offer: what to speak with it (ALPN).

    refusal: returns why a key is not the one that may be asked; "" if it is. relays, id: through
    which it is called, too, and the beginning of its id.
    """

    address: Address
    refusal: Callable[[str], str]
    title: str = "introducer"
    offer: bytes = H2
    relays: tuple[RelayAt, ...] = ()
    id: str = ""

    @property
    def place(self) -> str:
        """Return where it is, in words."""
        if self.address != RELAY:
            return f"at {self.address}"
        return f"behind {' and '.join(relay.address for relay in self.relays) or 'no relay'}"


def introducer(mesh_key: str, address: Address) -> Admitter:
    """Return the introducer of a mesh; raise IdentityError if the mesh key is none."""
    own = keys.fingerprint(keys.raw(keys.read_public(mesh_key)))
    wrong = f"{NOT_IT} the mesh_key of peers.yaml"
    return Admitter(address, lambda id: "" if id == own else wrong)


def sponsor(
    address: Address,
    is_known: Callable[[str], bool],
    relays: tuple[RelayAt, ...] = (),
    id: str = "",
) -> Admitter:
    """Return a node that admits newcomers. is_known: tells whether an id is the node's.

    relays, id: where it is called, too, and the beginning of its id.
    """
    wrong = f"{NOT_IT} that of the node that made the link"
    relays = relays if id else ()
    return Admitter(
        address, lambda id: "" if is_known(id) else wrong, "node", ADMITTING, relays, id
    )


async def enrol(
    identity: Identity,
    admitter: Admitter,
    address: Address,
    token: str,
    connect: Connect = open_directly,
) -> Enrolled:
    """Get a lease for an identity and store it; return members to contact, and revocations.

    connect: opens the connection, through a proxy if need be.

    Raise Unreachable if the admitter does not answer, Refused if it refuses, IdentityError if the
    key of what answers is not the one that may be asked.
    """
    reply = await _call(identity, admitter, "Enrol", address, token, connect)
    identity.take_lease(reply.lease)
    contacts = tuple(
        Update(contact.name, "alive", 0, contact.address, contact.id, bytes(contact.lease))
        for contact in list(reply.contacts)[:CONTACTS_MAX]
    )
    return Enrolled(contacts, tuple(bytes(revocation) for revocation in reply.revocations))


async def judge_token(
    identity: Identity,
    admitter: Admitter,
    address: Address,
    token: str,
    connect: Connect = open_directly,
) -> introducer_pb2.JudgeReply:
    """Ask whether `enrol` would get a lease, without getting one and without using the token up.

    Return what the admitter says of its mesh, as it came. Raise what `enrol` raises.
    """
    reply: introducer_pb2.JudgeReply = await _call(
        identity, admitter, "Judge", address, token, connect
    )
    return reply


async def _call(
    identity: Identity,
    admitter: Admitter,
    method: str,
    address: Address,
    token: str,
    connect: Connect,
) -> Any:
    asked = introducer_pb2.EnrolRequest(
        mesh=identity.mesh, name=identity.name, address=address, token=token
    )

    def judge(certificate: bytes, who: str) -> tuple[str, str]:
        return judged(certificate, lambda facts: admitter.refusal(facts.id))

    ways = Ways(
        relays=admitter.relays,
        id_of=lambda *_: admitter.id,
        connect=connect,
        proxied=True,
        offer=admitter.offer,
    )
    transport = GrpcTransport(Tls(identity.credentials, judge, lambda *_: None, ways=ways))
    try:
        channel = await transport.channel(admitter.address)
        stub = introducer_pb2_grpc.IntroducerStub(channel)
        try:
            return await getattr(stub, method)(asked, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as fault:
            raise _sentence(admitter, fault, transport) from None
        finally:
            await channel.close()
    finally:
        await transport.close()


def _sentence(
    admitter: Admitter, fault: grpc.aio.AioRpcError, transport: GrpcTransport
) -> FednodeError:
    why, who = transport.why(admitter.address, ""), f"The {admitter.title} {admitter.place}"
    if fault.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        if NOT_IT in why:
            return IdentityError(f"{who} cannot be believed: {why}.")
        hint = OPEN if admitter.address == RELAY and admitter.relays else ""
        return Unreachable(f"{who} does not answer: {why or 'start it'}.{hint}")
    return Refused(f"{who} refused: {foreign.line(fault.details() or '')}")
