"""Get a lease from an introducer, and the addresses of some members of the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc

from fednode.core import foreign
from fednode.core.types import Update
from fednode.errors import FednodeError, IdentityError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificate import judged
from fednode.identity.identity import Identity
from fednode.transports.grpc import GrpcTransport
from fednode.transports.tls import Tls
from fednode.wire.gen import introducer_pb2, introducer_pb2_grpc

TIMEOUT_S: Final = 10.0
CONTACTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Enrolled:
    """An introducer's reply: members to contact first, and the revocations that it knows."""

    contacts: tuple[Update, ...]
    revocations: tuple[bytes, ...]


async def enrol(
    identity: Identity, mesh_key: str, introducer: str, address: str, token: str
) -> Enrolled:
    """Get a lease for an identity and store it; return members to contact, and revocations.

    Raise Unreachable if the introducer does not answer, Refused if it refuses, IdentityError if the
    server that answers is not the introducer of this mesh.
    """
    own = keys.fingerprint(keys.raw(keys.read_public(mesh_key)))

    def judge(certificate: bytes, who: str) -> tuple[str, str]:
        wrong = "its key is not the mesh_key of peers.yaml"
        return judged(certificate, lambda found: "" if found.id == own else wrong)

    transport = GrpcTransport(Tls(identity.credentials, judge, lambda *_: None))
    try:
        channel = await transport.channel(introducer)
        stub = introducer_pb2_grpc.IntroducerStub(channel)
        request = introducer_pb2.EnrolRequest(
            mesh=identity.mesh, name=identity.name, address=address, token=token
        )
        try:
            reply = await stub.Enrol(request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as fault:
            raise _sentence(introducer, fault, transport) from None
        finally:
            await channel.close()
    finally:
        await transport.close()
    identity.take_lease(reply.lease)
    contacts = tuple(
        Update(one.name, "alive", 0, one.address, one.id, bytes(one.lease))
        for one in list(reply.contacts)[:CONTACTS_MAX]
    )
    return Enrolled(contacts, tuple(bytes(one) for one in reply.revocations))


def _sentence(
    introducer: str, fault: grpc.aio.AioRpcError, transport: GrpcTransport
) -> FednodeError:
    why = transport.why(introducer, "")
    if fault.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        if "mesh_key" in why:
            return IdentityError(f"The introducer at {introducer} cannot be believed: {why}.")
        return Unreachable(f"The introducer at {introducer} does not answer: {why or 'start it'}.")
    return Refused(f"The introducer at {introducer} refused: {foreign.line(fault.details() or '')}")
