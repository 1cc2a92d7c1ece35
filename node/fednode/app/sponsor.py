"""Enrolment beside a running node: newcomers and what they are told, and its own certificate.

Every node with keys answers, so that it is a sponsor as soon as the mesh key makes it one; a node
that is none refuses.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fednode.app.invite import DAYS, link_for, settled
from fednode.app.plan import NodePlan
from fednode.core.events import Record
from fednode.core.members.table import GONE, Member
from fednode.core.types import MemberUpdate
from fednode.enrolment.client import Place, renew
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.enrolment.service import EnrolmentService
from fednode.enrolment.words import words_of
from fednode.errors import FednodeError, StateError
from fednode.identity.certificates import SPONSOR_DAYS
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster, day
from fednode.observe.telemetry import Refusals
from fednode.runtime.driver import Driver
from fednode.settings.shared import shared_text
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import enrolment_pb2 as pb

MEMBERS_SHOWN: Final = 64
ASKED_MAX: Final = 64
"""Members that are asked for a new certificate."""
RENEWAL_S: Final = 6 * 3600.0
LOG: Final = logging.getLogger("fednode")


class Sponsor(EnrolmentService):
    """The enrolment of one node, beside its transport."""

    def __init__(
        self, plan: NodePlan, identity: NodeIdentity, roster: Roster, refusals: Refusals
    ) -> None:
        super().__init__(identity, roster, Ledger(plan.state / FOLDER))
        self.plan, self._refusals = plan, refusals
        self._fault = ""  # why the certificate could not be renewed last
        self._node: Driver | None = None
        self._backbone = ""
        self._seen: object = None

    @property
    def open(self) -> bool:
        """Whether this node may sign certificates now."""
        return self.identity.sponsor() is not None

    def attach(self, node: Driver, backbone: str) -> None:
        """Take the members from a node that runs. backbone: the fingerprint of its model."""
        self._node, self._backbone = node, backbone

    def take_certificate(self, pem: bytes) -> str:
        """Become a sponsor by a certificate of the mesh key; return what this node does now.

        Raise IdentityError if the certificate is of another node, key or mesh.
        """
        if self.identity.take_sponsor(pem, self.roster):
            self._tell_own()
        return f"{self.identity.name} admits newcomers until {day(self.identity.sponsor_end)}"

    def ending(self) -> str:
        """Return that the right to sign certificates ends soon, and the remedy; "" if not."""
        end = self.identity.sponsor_end
        if not end or end - self.identity.clock() > SPONSOR_DAYS * 24 * 3600 / 3:
            return ""
        name = self.identity.name
        return (
            f"{name} may admit sites and renew certificates until {day(end)} only: on the "
            f"founder's machine run `fednode sponsor {name}`"
        )

    async def keep_certificate(self, transport: GrpcTransport) -> None:
        """Renew the node's certificate before it ends, for as long as the node runs.

        `fednode sponsor` stores a right that it cannot tell this node, so the node looks for it.
        """
        while True:
            if self.identity.read_right():
                self._tell_own()
            if text := self.ending():
                self._refusals.show(Record("enrolment.ends", text, "warning"))
            if self.identity.needs_renewal(self.roster):
                await self._renew_certificate(transport)
            await asyncio.sleep(RENEWAL_S)

    async def _renew_certificate(self, transport: GrpcTransport) -> None:
        """Renew the certificate, by the node's own right if it has one; warn if that fails."""
        own = self.identity
        try:
            authority = own.sponsor()
            if authority is None:
                places = itertools.islice(self._places(), ASKED_MAX)
                await renew(transport, places, own, self.roster)
            else:
                chain = authority.node(own.name, own.key.public_key())
                own.take_certificate(chain, self.roster)
            self._fault = ""
        except FednodeError as fault:
            self._fault = str(fault)
            LOG.warning("%s", self.warning())
        if not self._fault:
            self._tell_own()

    def _tell_own(self) -> None:
        """Let the node tell its new certificate, before the one that its peers know ends."""
        own = self.identity
        if self._node is not None:
            news = MemberUpdate(own.name, "alive", 0, self.plan.address, own.id, own.proof)
            self._node.tell([news])

    def _places(self) -> Iterator[Place]:
        """Yield whom to ask for a new certificate: sponsors first, then all others."""
        places = {peer.name: peer.address for peer in self.plan.others}
        places |= {
            member.name: member.address
            for member in self.known()
            if member.address and member.state not in GONE
        }
        chain = self.identity.chain
        own = chain.sponsor.name if chain and chain.sponsor else ""
        for name in dict.fromkeys((own, *self.roster.sponsors(), *places)):
            if name in places and name != self.identity.name:
                yield name, places[name]

    def warning(self) -> str:
        """Return until when the certificate holds and who can renew it, if that failed; else ""."""
        ended = self.identity.end < self.identity.clock()
        if not self.identity.needs_renewal(self.roster) or not (self._fault or ended):
            return ""
        date = day(self.identity.end)
        text = (
            f"The certificate of this node ended on {date}, so the other members take nothing from "
            "it any more."
            if ended
            else f"The certificate of this node ends on {date}, and it is not renewed."
        )
        why = f" {self._fault.rstrip('.')}." if self._fault else ""
        names = ", ".join(self.roster.sponsors()) or "no site that this node knows"
        return (
            f"{text} Those who can renew it: {names}; start one of them.{why} If all of them are "
            f"lost, the mesh key that the founder kept makes another: `fednode sponsor "
            f"{self.plan.name} --mesh-key FILE` on this machine (docs/first-mesh.md)."
        )

    async def look(self) -> None:
        """Let in the guests of the ledger's invitations; read it if it changed, or one may end."""
        now = self.open, self.ledger.stamp(), time.time() // 60
        if now == self._seen:
            return
        try:
            open_ = await asyncio.to_thread(self.ledger.invitations) if self.open else {}
        except StateError as fault:
            LOG.warning("No invitation holds: %s", fault)
            open_ = {}
        self._seen = now
        self.roster.set_invitations(open_)

    async def sites(self) -> dict[str, Any]:
        """Return the sites that wait, the first one first, and at most MEMBERS_SHOWN members.

        The words of a new key take a tenth of a second, so a thread works them out.
        """

        def shown(sites: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
            return [
                {"name": name, "address": address, "id": id, "words": words_of(id)}
                for name, address, id in sites
            ]

        entries = self.ledger.read().entries.items()
        waiting = [(site, one.address, one.id) for site, one in entries if one.waiting]
        own = (self.plan.name, self.plan.address, self.identity.id)
        others = [
            (peer.name, peer.address, peer.id)
            for peer in self.known()
            if peer.id and peer.state not in GONE
        ]
        return await asyncio.to_thread(
            lambda: {
                "waiting": shown(waiting),
                "members": shown([own, *others][:MEMBERS_SHOWN]),
                "mesh_words": words_of(str(self.plan.peers.mesh_key)),
            }
        )

    async def invite(self, site: str, approve: bool) -> dict[str, Any]:
        """Make a link for a site, as `fednode invite` does; raise ConfigError if it cannot be."""

        def made() -> dict[str, Any]:
            link = link_for(site, self.plan, self.ledger, approve=approve)
            words = words_of(str(self.plan.peers.mesh_key))
            return {"site": site, "link": link, "words": words, "days": DAYS, "approve": approve}

        invitation = await asyncio.to_thread(made)
        await self.look()
        LOG.info("the operator invited %s on the page", site)
        return invitation

    async def settle(self, name: str, id: str, good: bool) -> str:
        """Accept or refuse a key that waits for a name; return what happens next.

        Raise ConfigError if this key does not wait under this name any more.
        """
        await asyncio.to_thread(self.ledger.settle, name, good, id)
        LOG.info("the operator %s %s on the page", "accepted" if good else "refused", name)
        return settled(name, good)

    def known(self) -> tuple[Member, ...]:
        return () if self._node is None else tuple(self._node.view().peers)

    def greet(self, name: str, address: str, proof: bytes) -> None:
        """Let the node greet a newcomer, so that it can be asked whether it reaches it."""
        if not any(member.id and member.name != name for member in self.known()):
            LOG.info(
                "%s is the first site that joined. Let it admit sites and renew certificates, too, "
                "so that the mesh outlives this machine: fednode sponsor %s",
                *(name, name),
            )
        news = self.roster.filter_gossip("", [MemberUpdate(name, "alive", 0, address, "", proof)])
        if self._node is not None:
            self._node.tell(news)

    def tell(self, record: Record) -> None:
        self._refusals.show(record)

    def describe(self, guest: str) -> pb.DescribeReply:
        members = (one.name for one in self.known() if one.state not in GONE)
        others = [name for name in members if name != guest]
        model = self.plan.settings.model.title
        known = f", fingerprint {self._backbone[:12]}" if self._backbone else ""
        return pb.DescribeReply(
            settings=shared_text(self.plan.settings).encode(),
            members=[self.plan.name, *others][:MEMBERS_SHOWN],
            model=model + known,
        )
