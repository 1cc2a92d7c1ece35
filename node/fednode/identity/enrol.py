"""Get a lease from an introducer, and the addresses of some members of the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import grpc

from fednode.core import foreign
from fednode.core.types import Update
from fednode.errors import FednodeError, IdentityError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificate import judged
from fednode.identity.identity import Identity
from fednode.transports.grpc import GrpcTransport
from fednode.transports.links import Connect, open_directly
from fednode.transports.tls import Tls, Ways
from fednode.wire.gen import introducer_pb2, introducer_pb2_grpc

TIMEOUT_S: Final = 10.0
CONTACTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Enrolled:
    """An introducer's reply: members to contact first, and the revocations that it knows."""

    contacts: tuple[Update, ...]
    revocations: tuple[bytes, ...]


async def enrol(
    identity: Identity,
    mesh_key: str,
    introducer: str,
    address: str,
    token: str,
    connect: Connect = open_directly,
) -> Enrolled:
    """Get a lease for an identity and store it; return members to contact, and revocations.

    connect: opens the connection, through a proxy if need be.

    Raise Unreachable if the introducer does not answer, Refused if it refuses, IdentityError if the
    server that answers is not the introducer of this mesh.
    """
    asked = introducer_pb2.EnrolRequest(
        mesh=identity.mesh, name=identity.name, address=address, token=token
    )
    reply = await _call(identity, mesh_key, introducer, "Enrol", asked, connect)
    identity.take_lease(reply.lease)
    contacts = tuple(
        Update(contact.name, "alive", 0, contact.address, contact.id, bytes(contact.lease))
        for contact in list(reply.contacts)[:CONTACTS_MAX]
    )
    return Enrolled(contacts, tuple(bytes(revocation) for revocation in reply.revocations))


async def judge_token(
    identity: Identity,
    mesh_key: str,
    introducer: str,
    address: str,
    token: str,
    connect: Connect = open_directly,
) -> None:
    """Ask whether `enrol` would get a lease, without getting one and without using the token up.

    Raise what `enrol` raises.
    """
    asked = introducer_pb2.EnrolRequest(
        mesh=identity.mesh, name=identity.name, address=address, token=token
    )
    await _call(identity, mesh_key, introducer, "Judge", asked, connect)


async def _call(
    identity: Identity,
    mesh_key: str,
    introducer: str,
    method: str,
    asked: introducer_pb2.EnrolRequest,
    connect: Connect,
) -> Any:
    own = keys.fingerprint(keys.raw(keys.read_public(mesh_key)))

    def judge(certificate: bytes, who: str) -> tuple[str, str]:
        wrong = "its key is not the mesh_key of peers.yaml"
        return judged(certificate, lambda facts: "" if facts.id == own else wrong)

    ways = Ways(connect=connect, proxied=True)
    transport = GrpcTransport(Tls(identity.credentials, judge, lambda *_: None, ways=ways))
    try:
        channel = await transport.channel(introducer)
        stub = introducer_pb2_grpc.IntroducerStub(channel)
        try:
            return await getattr(stub, method)(asked, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as fault:
            raise _sentence(introducer, fault, transport) from None
        finally:
            await channel.close()
    finally:
        await transport.close()


def _sentence(
    introducer: str, fault: grpc.aio.AioRpcError, transport: GrpcTransport
) -> FednodeError:
    why = transport.why(introducer, "")
    if fault.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        if "mesh_key" in why:
            return IdentityError(f"The introducer at {introducer} cannot be believed: {why}.")
        return Unreachable(f"The introducer at {introducer} does not answer: {why or 'start it'}.")
    return Refused(f"The introducer at {introducer} refused: {foreign.line(fault.details() or '')}")
