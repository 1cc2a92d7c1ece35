"""Make invitations, and decide on sites that wait: for the commands, and for the node's page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from fednode.admission import link as links
from fednode.admission.register import Register
from fednode.admission.tokens import LINK_TOKEN_BYTES
from fednode.admission.words import words_of
from fednode.app.admission import MEMBERS_SHOWN, Admission
from fednode.app.plan import NodePlan
from fednode.core.members.table import GONE
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.identity import Identity
from fednode.observe.admitting import Invitation, Site
from fednode.settings.peers import address_faults
from fednode.settings.read import named
from fednode.transports.address import RELAY

DAYS: Final = 7
"""How long a link can be used, if nobody says otherwise."""
LOG: Final = logging.getLogger("fednode")


def link_for(
    site: str,
    plan: NodePlan,
    identity: Identity,
    register: Register,
    *,
    days: int = DAYS,
    more: Sequence[str] = (),
    again: bool = False,
    approve: bool = False,
) -> str:
    """Return the text of a new link for a site; earlier links for the site end.

    more: further addresses of this node. again: the name may belong to a key that was lost.
    approve: the link only knocks. Raise ConfigError if the site cannot be invited.
    """
    site = named("SITE", site)
    addresses = [address for address in (plan.address, *more) if address != RELAY]
    if site == plan.name:
        raise ConfigError(f"SITE is {site!r}, which is this node's own name: choose another.")
    faults = [text for at in addresses for text in address_faults("--address", site, at, False)]
    if faults or len(addresses) > links.ADDRESSES_MAX:
        few = f"There are {len(addresses)} addresses; a link has {links.ADDRESSES_MAX} at most."
        raise ConfigError("\n".join(faults) or few)
    if not again and any(node.name == site for node in register.enrolled()):
        raise ConfigError(
            f"{site!r} is a member already: choose another name, or give --again if that site "
            "has lost its key."
        )
    link = links.Link(
        mesh=plan.peers.mesh,
        mesh_key=str(plan.peers.mesh_key),
        maker=links.half_of(identity.id),
        token=bytes(LINK_TOKEN_BYTES),
        name=site,
        addresses=tuple(addresses),
        relays=plan.peers.relays[: links.RELAYS_MAX],
    )
    links.written(link)  # before the register changes, so that no token is made that nobody sees
    if again:
        token = register.give_again(site, days, approve)
    else:
        token = register.tokens.for_link(site, days, approve=approve)
    return links.written(replace(link, token=token))


class Inviting:
    """What the page of a node that admits shows of newcomers, and does for its operator.

    Words of a key take a tenth of a second, so a thread works them out, one key after the other.
    """

    def __init__(self, identity: Identity, admission: Admission) -> None:
        self._identity, self._admission = identity, admission
        self._words: dict[str, str] = {}
        self._working: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Tell whether the node may admit sites now."""
        return bool(self._admission.right)

    def waiting(self) -> list[Site]:
        """Return the sites that knocked and wait for the operator, the first one first."""
        asked = self._admission.register.tokens.requests()
        return self._with_words([Site(one.name, one.address, one.id) for one in asked])

    def members(self) -> list[Site]:
        """Return this node and the members whose keys it knows, at most MEMBERS_SHOWN."""
        own = Site(self._admission.plan.name, self._admission.plan.address, self._identity.id)
        known = [
            Site(peer.name, peer.address, peer.id)
            for peer in self._admission.known()
            if peer.id and peer.state not in GONE
        ]
        return self._with_words([own, *known][:MEMBERS_SHOWN])

    def mesh_words(self) -> str:
        """Return the words of the mesh key, which newcomers see; "" while they are worked out."""
        mesh_key = str(self._admission.plan.peers.mesh_key)
        return self._with_words([Site("", "", mesh_key)])[0].words

    async def invite(self, site: str, approve: bool) -> Invitation:
        """Make a link for a site, as `fednode invite` does; raise ConfigError if it cannot be."""
        mesh_key = keys.read_group(str(self._admission.plan.peers.mesh_key))
        words = await asyncio.to_thread(words_of, mesh_key)
        register = self._admission.register
        make = partial(link_for, approve=approve)
        link = await register.apart(make, site, self._admission.plan, self._identity, register)
        LOG.info("the operator invited %s on the page", site)
        return Invitation(site, link, words, DAYS, approve)

    async def settle(self, name: str, id: str, good: bool) -> str:
        """Admit or refuse a key that knocked for a name; return what happens next.

        Raise ConfigError if this key does not wait under this name any more.
        """
        register = self._admission.register
        asked = await register.apart(register.tokens.requests)
        if not any((one.name, one.id) == (name, id) for one in asked):
            raise ConfigError(f"The key that you saw waits as {name!r} no more: look again.")
        await register.apart(register.tokens.settle, name, good, id)
        LOG.info("the operator %s %s on the page", "admitted" if good else "refused", name)
        if good:
            return f"{name} may join now: it runs the same `fednode join` again."
        return f"{name} was refused, and its link has ended."

    def _with_words(self, sites: list[Site]) -> list[Site]:
        """Add the words that are known; begin to work out the others."""
        missing = [site.id for site in sites if site.id not in self._words]
        if missing and (self._working is None or self._working.done()):
            self._working = asyncio.get_running_loop().create_task(self._work_out(missing))
        return [site.with_words(self._words.get(site.id, "")) for site in sites]

    async def _work_out(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._words[id] = await asyncio.to_thread(words_of, keys.read_group(id))
