"""Sponsors, newcomers and members of a small mesh, over real connections on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fednode.core.events import ASKS, Record
from fednode.core.types import MemberUpdate
from fednode.enrolment.client import Newcomer, renew
from fednode.enrolment.invitation import Invitation
from fednode.enrolment.ledger import Ledger
from fednode.enrolment.service import EnrolmentService
from fednode.identity.certificates import TOKEN_BYTES
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import enrolment_pb2 as pb
from tests.unit.identity.people import SmallMesh, invitation_key

MESH = SmallMesh("ward")
AWAY = "127.0.0.1:9"


@dataclasses.dataclass
class Site:
    """A member of the mesh. warned, asked: what its operator heard. greeted: new members."""

    identity: NodeIdentity
    roster: Roster
    address: str = ""
    warned: list[str] = dataclasses.field(default_factory=list)
    asked: list[str] = dataclasses.field(default_factory=list)
    greeted: list[str] = dataclasses.field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.identity.state / "enrolment")
        self.transport = GrpcTransport(self.identity.own, self.roster)

    @classmethod
    def create(cls, folder: Path, name: str, sponsor: bool = True) -> Site:
        """Return a site with a certificate. sponsor: it may sign others, and has signed its own."""
        MESH.write(folder / name, name, sponsor=MESH.sponsor_of(name) if sponsor else None)
        return cls(NodeIdentity(folder / name), MESH.roster())

    @contextlib.asynccontextmanager
    async def serving(self, renew: Any = None) -> AsyncIterator[Site]:
        """Listen, with the service of enrolment alone. renew: answers for it."""
        service = Service(self)
        if renew is not None:
            service.Renew = renew  # type: ignore[method-assign]
        self.transport.add_service(service.register)
        self.address = await self.transport.listen("127.0.0.1:0", None)
        try:
            yield self
        finally:
            await self.transport.close()

    def invite(self, name: str, approve: bool = False) -> Invitation:
        """Return an invitation, which the site knows from now on."""
        token = name.encode().ljust(TOKEN_BYTES, b".")
        self.ledger.invite(name, invitation_key(token), 7, approve)
        self.follow()
        return Invitation(
            mesh=MESH.mesh,
            mesh_key=MESH.mesh_key_text,
            token=token,
            site=name,
            sponsor=self.identity.name,
            address=self.address,
        )

    @contextlib.asynccontextmanager
    async def admitted(self, folder: Path) -> AsyncIterator[Site]:
        """Admit b, with its state in a folder."""
        new = newcomer(folder, self.invite("b"))
        await new.enrol(AWAY)
        site = Site(NodeIdentity(folder), new.roster)
        try:
            yield site
        finally:
            await site.transport.close()

    async def renews(self, *sites: Site) -> bool:
        """Ask sites in turn for a new certificate; tell whether this site shows it now."""
        before = self.identity.own()
        places = [(site.identity.name, site.address) for site in sites]
        await renew(self.transport, places, self.identity, self.roster)
        return self.identity.own() != before

    def follow(self) -> None:
        """Tell TLS of the invitations, as the running node does."""
        self.roster.set_invitations(self.ledger.invitations())


class Service(EnrolmentService):
    """The service of a site, which notes what its operator hears."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.identity, site.roster, site.ledger, clock=lambda: site.now)
        self.site = site

    def describe(self, guest: str) -> pb.DescribeReply:
        return pb.DescribeReply(members=[self.identity.name], settings=b"{}")

    def greet(self, name: str, address: str, proof: bytes) -> None:
        news = [MemberUpdate(name, "alive", 0, address, "", proof)]
        self.site.greeted += [
            f"{one.name} at {one.address}" for one in self.roster.filter_gossip("", news)
        ]

    def tell(self, record: Record) -> None:
        (self.site.asked if record.kind == ASKS else self.site.warned).append(record.text)


def newcomer(folder: Path, invitation: Invitation) -> Newcomer:
    """Return a newcomer with a key of its own in a folder."""
    return Newcomer(invitation, NodeIdentity.create(folder))
