"""The service beside a node's own: what a sponsor answers newcomers, and members that renew."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from fednode.core.events import ASKS, Record
from fednode.core.rate_limit import TokenBuckets
from fednode.enrolment.ledger import ApprovalPending, Ledger, TokenReused
from fednode.enrolment.words import words_of
from fednode.errors import AddressError, IdentityError, StateError
from fednode.identity.certificates import Authority, Chain
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Guest, Member, Roster
from fednode.transports.address import parse
from fednode.transports.credentials import chain_of
from fednode.wire.gen import enrolment_pb2 as pb
from fednode.wire.gen import enrolment_pb2_grpc

AGAIN_S: Final = 60.0
"""The operator hears of an invitation once in this time, however often its link is shown."""
CLOCKS_S: Final = 24 * 3600.0
"""By so much the clock of a member that renews may be ahead."""
TOO_EARLY: Final = "a certificate is renewed in its last third, and this one's has not begun"
BROKEN: Final = "the ledger of this node cannot be used now; its log says why"
LOG: Final = logging.getLogger("fednode")
_OTHERS: Final[dict[type, str]] = {
    Guest: "this node is a member already: only an invited site enrols",
    Member: "only a member renews",
}
Returned = TypeVar("Returned")
Caller = TypeVar("Caller", Guest, Member)


class EnrolmentService(enrolment_pb2_grpc.EnrolmentServicer):
    """Answer guests and members; what waits for the ledger or the disk runs on a thread.

    The node around it overrides what follows `Renew`.
    """

    def __init__(
        self,
        identity: NodeIdentity,
        roster: Roster,
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up. clock: returns seconds."""
        self.identity, self.roster, self.ledger, self._clock = identity, roster, ledger, clock
        self._told = TokenBuckets(1.0, 1.0 / AGAIN_S)

    def register(self, server: Any) -> None:
        enrolment_pb2_grpc.add_EnrolmentServicer_to_server(self, server)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeReply:
        """Say what the mesh is, to a guest whose invitation is good."""
        guest, _ = await self._caller(context, Guest)
        owner = self.roster.id_of(guest.name)

        def check() -> None:
            self._authority()
            self.ledger.check(guest.name, guest.id, owner)

        await self._apart(context, guest, check)
        reply = self.describe(guest.name)
        reply.clock = time.time()
        return reply

    async def Enrol(self, request: pb.EnrolRequest, context: Any) -> pb.CertificateReply:
        """Give a guest a certificate on the name that it is invited under."""
        guest, shown = await self._caller(context, Guest)
        name, address, owner = guest.name, request.address, self.roster.id_of(guest.name)

        def enrol() -> bytes:
            try:
                parse(address)
            except AddressError as fault:
                raise IdentityError(str(fault)) from fault
            authority = self._authority()
            self.ledger.enrol(name, guest.id, address, owner)
            return authority.node(name, shown.own.key)

        chain = await self._apart(context, guest, enrol, address)
        if self._is_new("enrolled", name):
            LOG.info("%s was enrolled at %s, key %s", name, address, guest.id[:12])
        self.greet(name, address, Chain.read(chain).pack())
        return self._issued(chain)

    async def Renew(self, request: pb.RenewRequest, context: Any) -> pb.CertificateReply:
        """Give a member a new certificate for the key and the name that it has."""
        member, shown = await self._caller(context, Member)

        def renew() -> bytes:
            authority = self._authority()
            soon = shown.is_late(self.identity.clock() + CLOCKS_S)
            if not soon and not self.roster.proof(shown.pem):
                raise IdentityError(TOO_EARLY)
            return authority.node(member.name, shown.own.key)

        chain = await self._apart(context, member, renew)
        if self._is_new("renewed", member.name):
            LOG.info("the certificate of %s was renewed", member.name)
        return self._issued(chain)

    def describe(self, guest: str) -> pb.DescribeReply:
        """Return what a guest is told of the mesh."""
        return pb.DescribeReply()

    def greet(self, name: str, address: str, proof: bytes) -> None:
        """Take a new member. proof: its certificates, as gossip carries them."""

    def tell(self, record: Record) -> None:
        """Tell the operator of a copied link, or of a site that waits."""

    def _issued(self, chain: bytes) -> pb.CertificateReply:
        return pb.CertificateReply(chain=chain, revocations=self.roster.revocations())

    def _authority(self) -> Authority:
        """Return what signs certificates; raise IdentityError if this node may not."""
        authority = self.identity.sponsor()
        if authority is None:
            raise IdentityError(
                f"{self.identity.name} may not admit sites or renew certificates now: ask another "
                "member, or the founder"
            )
        return authority

    async def _caller(self, context: Any, kind: type[Caller]) -> tuple[Caller, Chain]:
        """Return who calls, and what it shows; end the call of a caller of the other kind."""
        chain = chain_of(context)
        caller = self.roster.identify(chain)
        if not isinstance(caller, kind):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, _OTHERS[kind])
            raise AssertionError  # abort raises
        return caller, Chain.read(chain)

    async def _apart(
        self,
        context: Any,
        caller: Guest | Member,
        work: Callable[[], Returned],
        address: str = "",
    ) -> Returned:
        """Return what a piece of work returns, done on a thread; end the call if it refuses."""
        try:
            return await asyncio.to_thread(work)
        except IdentityError as fault:
            if self._is_new(type(fault).__name__, caller.name):
                await self._show(fault, caller, address)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(fault))
        except StateError as fault:
            if self._is_new("broken", caller.name):
                LOG.error("%s was not answered: %s", caller.name, fault)
            await context.abort(grpc.StatusCode.INTERNAL, BROKEN)
        raise AssertionError  # abort raises

    async def _show(self, fault: IdentityError, caller: Guest | Member, address: str) -> None:
        """Tell the operator why a caller was refused."""
        name = caller.name
        if isinstance(fault, TokenReused):
            text = f"a copied link: {fault} (the key {caller.id} came with it)"
            self.tell(Record("admission.copied", text, "warning"))
        elif isinstance(fault, ApprovalPending):
            words = await asyncio.to_thread(words_of, caller.id)
            text = (
                f"{name} at {address} asks to join, words of its key: {words}; compare them by "
                f"phone, then `fednode invite --accept {name}` or `fednode invite --refuse {name}`"
            )
            self.tell(Record(ASKS, text, "warning", {"peer": name}))
        else:
            LOG.info("%s was refused: %s", name, fault)

    def _is_new(self, kind: str, name: str) -> bool:
        """Tell whether the operator did not hear this of a name in the last minute."""
        return self._told.of((kind, name), self._clock()).take()
