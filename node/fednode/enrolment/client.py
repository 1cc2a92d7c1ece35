"""Ask a sponsor: as a newcomer with an invitation, or as a member whose certificate ends soon."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any, Final

import grpc

from fednode.core import foreign
from fednode.enrolment.invitation import Invitation
from fednode.errors import FednodeError, IdentityError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificates import INVITATION_DAYS, Authority, Credential
from fednode.identity.identity import IDENTITY, REVOKED_FILE, NodeIdentity
from fednode.identity.roster import Roster
from fednode.transports.address import RELAY
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import enrolment_pb2 as pb
from fednode.wire.gen import enrolment_pb2_grpc
from fednode.wire.replies import clean

TIMEOUT_S: Final = 10.0
TRIES: Final = 3
AGAIN_S: Final = 1.5
"""Pause between two tries: a node tells its relays of a new invitation within two seconds."""
APART_MAX_S: Final = 1800.0
"""Clocks that differ by more make certificates that do not hold yet, or no more."""
_UNKNOWN: Final = (
    "it does not know the link (it has ended or was replaced: ask for a new link), or the clocks "
    "differ"
)
# What gRPC says of a connection that does not come up, and what it means here.
_WHY: Final = {
    "Hostname Verification": "another node is there",
    "handshake failed": "a node of another mesh is there, or the clocks differ",
    "Socket closed": _UNKNOWN,
    "Connection reset": _UNKNOWN,
    "Broken pipe": _UNKNOWN,
}
Place = tuple[str, Address]
"""A node's name and its address."""


class Newcomer:
    """A site with an invitation, and the identity that it will have as a member."""

    def __init__(
        self, invitation: Invitation, identity: NodeIdentity, proxy: str | None = None
    ) -> None:
        """Set up. proxy: of HTTP, as in the setting `proxy`. Raise StateError for damaged files."""
        self.invitation, self._identity, self._proxy = invitation, identity, proxy
        self.roster = Roster(invitation.mesh, keys.read_public(invitation.mesh_key))
        self.roster.keep_in(identity.state / IDENTITY / REVOKED_FILE)

    async def describe(self) -> pb.DescribeReply:
        """Ask the sponsor what the mesh is; the invitation is not used up.

        Raise Unreachable if the sponsor does not answer, Refused if it refuses, IdentityError if
        the two clocks differ too much.
        """
        reply: pb.DescribeReply = clean(await self._ask("Describe", pb.DescribeRequest()))
        if abs(apart := reply.clock - time.time()) > APART_MAX_S:
            raise IdentityError(
                f"The clock of {self.invitation.sponsor} is {abs(apart) / 60:.0f} minutes "
                f"{'ahead of' if apart > 0 else 'behind'} this machine's, and certificates hold by "
                "the clock: set the clock that is wrong, then use the link; it holds still."
            )
        return reply

    async def enrol(self, address: Address) -> pb.CertificateReply:
        """Use the invitation: get and store a certificate. Raise what `describe` raises.

        address: where the members will reach this node.
        """
        reply: pb.CertificateReply = await self._ask("Enrol", pb.EnrolRequest(address=address))
        _take(reply, self._identity, self.roster)
        return reply

    async def _ask(self, method: str, request: Any) -> Any:
        """Return the answer of the sponsor, which may not know of the invitation at once."""
        invitation, key = self.invitation, self._identity.key
        authority = Authority.invitation(invitation.token)
        signed = authority.node(invitation.site, key.public_key(), INVITATION_DAYS)
        shown = Credential(self._identity.own().key, signed)
        transport = GrpcTransport(lambda: shown, self.roster, invitation.relays, proxy=self._proxy)
        place = invitation.sponsor, invitation.address
        try:
            for _ in range(TRIES - 1):
                with contextlib.suppress(Unreachable):
                    return await _call(transport, place, method, request)
                await asyncio.sleep(AGAIN_S)
            return await _call(transport, place, method, request)
        finally:
            await transport.close()


async def renew(
    transport: GrpcTransport, places: Iterable[Place], identity: NodeIdentity, roster: Roster
) -> None:
    """Get and store a new certificate from one of several members, each asked in its turn.

    A member that refuses, is no sponsor, does not answer, or answers with what does not hold, is no
    end. Raise the first refusal if nobody renews, or Unreachable if nobody answers.
    """
    faults = list[FednodeError]()
    for place in places:
        try:
            reply = await _call(transport, place, "Renew", pb.RenewRequest())
            _take(reply, identity, roster)
        except (Unreachable, Refused, IdentityError) as fault:
            faults.append(fault)
        else:
            return
    refusals = [fault for fault in faults if not isinstance(fault, Unreachable)]
    raise next(iter(refusals or faults), Unreachable("no member is known that could renew it"))


def _take(reply: pb.CertificateReply, identity: NodeIdentity, roster: Roster) -> None:
    """Store what a sponsor answered; raise IdentityError if the certificate does not hold."""
    roster.learn_revocations(reply.revocations)
    if identity.sponsor() is None:  # a sponsor since a moment signs its own
        identity.take_certificate(reply.chain, roster)


async def _call(transport: GrpcTransport, place: Place, method: str, request: Any) -> Any:
    """Return the answer of a node; raise Refused or Unreachable with a sentence."""
    name, address = place
    channel = await transport.channel(address, name)
    try:
        call = getattr(enrolment_pb2_grpc.EnrolmentStub(channel), method)
        reply = await call(request, timeout=TIMEOUT_S)
        if reply is None:  # gRPC could not read it
            raise Unreachable(f"The answer of {name} cannot be read: it runs another version.")
        return reply
    except grpc.aio.AioRpcError as fault:
        raise _sentence(name, address, fault) from None
    finally:
        await channel.close()


def _sentence(name: str, address: Address, fault: grpc.aio.AioRpcError) -> FednodeError:
    code, details = fault.code(), fault.details() or ""
    where = "behind its relays" if address == RELAY else f"at {address}"
    if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        why = next((text for part, text in _WHY.items() if part in details), "start it")
        return Unreachable(f"{name} {where} does not answer: {why}.")
    return Refused(f"{name} {where} refused: {foreign.line(details)}")
