"""Make invitations, decide on sites that wait, and issue certificates for nodes of one owner."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fednode.app.node_yaml import mesh_text
from fednode.app.plan import NodePlan
from fednode.app.sponsor import MEMBERS_SHOWN, Sponsor
from fednode.core.members.table import GONE
from fednode.enrolment import invitation as links
from fednode.enrolment.ledger import Ledger
from fednode.enrolment.words import words_of
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.certificates import TOKEN_BYTES, Authority
from fednode.identity.identity import IDENTITY, NodeIdentity, keep_identity_private
from fednode.identity.roster import Roster
from fednode.observe.admitting import Invitation, Site
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import named
from fednode.storage.files import put
from fednode.transports.address import RelayEntry

DAYS: Final = 7
"""How long a link can be used."""
LOG: Final = logging.getLogger("fednode")


def link_for(
    site: str,
    plan: NodePlan,
    ledger: Ledger,
    *,
    again: bool = False,
    approve: bool = False,
) -> str:
    """Return a new link for a site, good for DAYS; the earlier link of the site ends.

    again: the site is a member that lost its key. approve: the operator accepts the key of the site
    first. Raise ConfigError if the site cannot be invited.
    """
    site = named("SITE", site)
    if site == plan.name:
        raise ConfigError(f"SITE is {site!r}, which is this node's own name: choose another.")
    token = secrets.token_bytes(TOKEN_BYTES)
    invitation = links.Invitation(
        mesh=plan.peers.mesh,
        mesh_key=str(plan.peers.mesh_key),
        token=token,
        site=site,
        sponsor=plan.name,
        address=plan.address,
        relays=plan.peers.relays[: links.RELAYS_MAX],
    )
    key = Authority.invitation(token).key.public_key()
    ledger.invite(site, keys.point_of(key), DAYS, again=again, approve=approve)
    return links.encode(invitation)


def issue(
    folder: Path, plan: NodePlan, authority: Authority, ledger: Ledger, nodes: Mapping[str, str]
) -> None:
    """Write a folder for each node: its key, its certificate, and a peers.yaml that lists them all.

    authority: the sponsor's, or the mesh key's. nodes: addresses by name; relays that peers.yaml
    lists are among them. A node that has its folder gets a new certificate for the key there; this
    node itself gets a copy of its own key. Nobody needs to run. Raise ConfigError for a name that
    another key has, and StateError for a folder in which other users may write.
    """
    mesh, mesh_key = plan.peers.mesh, str(plan.peers.mesh_key)
    roster = Roster(mesh, keys.read_public(mesh_key))
    relays = {relay.name: relay.address for relay in plan.peers.relays}
    relays = {name: nodes.get(name, address) for name, address in relays.items()}
    peers = {peer.name: peer.address for peer in plan.peers.peers} | dict(nodes)
    listed = tuple(PeerEntry(*entry) for entry in peers.items() if entry[0] not in relays)
    doors = tuple(RelayEntry(*entry) for entry in relays.items())
    text = mesh_text(Peers(mesh, listed, mesh_key=mesh_key, relays=doors))
    for name in nodes:
        own = folder / name
        if name == plan.name and not (own / IDENTITY / keys.KEY_FILE).exists():
            keys.store(own / IDENTITY / keys.KEY_FILE, NodeIdentity(plan.state).key)
        keep_identity_private(own)  # a key there may be somebody else's
        identity = NodeIdentity.create(own)
        ledger.record(name, identity.id)
        identity.take_certificate(authority.node(name, identity.key.public_key()), roster)
        put(own / "peers.yaml", text, "folder", for_all=True)


class Invitations:
    """The newcomers of a sponsor, as its page shows them to the operator, and its buttons."""

    def __init__(self, sponsor: Sponsor) -> None:
        self._sponsor, self._ledger = sponsor, sponsor.ledger

    @property
    def open(self) -> bool:
        return self._sponsor.open

    async def waiting(self) -> list[Site]:
        """Return the sites that wait for the operator, the first one first."""
        entries = self._ledger.read().entries.items()
        waiting = [(site, one.address, one.id) for site, one in entries if one.waiting]
        return await _with_words(waiting)

    async def members(self) -> list[Site]:
        """Return this node and the members whose keys it knows, at most MEMBERS_SHOWN."""
        plan = self._sponsor.plan
        own = (plan.name, plan.address, self._sponsor.identity.id)
        others = [
            (peer.name, peer.address, peer.id)
            for peer in self._sponsor.known()
            if peer.id and peer.state not in GONE
        ]
        return await _with_words([own, *others][:MEMBERS_SHOWN])

    async def mesh_words(self) -> str:
        """Return the words of the mesh key, which newcomers see."""
        return await asyncio.to_thread(words_of, str(self._sponsor.plan.peers.mesh_key))

    async def invite(self, site: str, approve: bool) -> Invitation:
        """Make a link for a site, as `fednode invite` does; raise ConfigError if it cannot be."""
        plan, words = self._sponsor.plan, await self.mesh_words()
        link = await asyncio.to_thread(link_for, site, plan, self._ledger, approve=approve)
        await self._sponsor.look()
        LOG.info("the operator invited %s on the page", site)
        return Invitation(site, link, words, DAYS, approve)

    async def settle(self, name: str, id: str, good: bool) -> str:
        """Accept or refuse a key that waits for a name; return what happens next.

        Raise ConfigError if this key does not wait under this name any more.
        """
        await asyncio.to_thread(self._ledger.settle, name, good, id)
        LOG.info("the operator %s %s on the page", "accepted" if good else "refused", name)
        return settled(name, good)


async def _with_words(sites: Sequence[tuple[str, str, str]]) -> list[Site]:
    """Return sites, given by name, address and id; the words of a new key take a tenth of a second.

    So a thread works them out.
    """
    return await asyncio.to_thread(lambda: [Site(*site, words_of(site[2])) for site in sites])


def settled(name: str, good: bool) -> str:
    """Return what follows of an operator's decision on a site."""
    if good:
        return f"{name} may join now: it runs the same `fednode join` again."
    return f"{name} was refused, and its link has ended."
