"""Which of a node's ways into its mesh are open, and what to ask of IT, for `fednode check`."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Final, Literal

from fednode.app.network import IDENTITY, identity_in, relays_of, trust_of
from fednode.app.plan import NodePlan
from fednode.errors import FednodeError
from fednode.identity.keys import KEY_FILE
from fednode.transports.address import RELAY, Endpoint, parse
from fednode.transports.links import Links
from fednode.transports.opening import NoRelay
from fednode.transports.proxy import OFF, Through, connector, of_environment, read
from fednode.transports.session import showing

Level = Literal["fault", "warning", "note"]

CONNECT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way into the mesh. what: its name. place: where it leads. why: why it is closed, or "".

    proxy: through which it leads; "" for none.
    """

    what: Literal["relay", "introducer"]
    place: str
    why: str = ""
    proxy: str = ""

    def sentence(self) -> str:
        """Return whether it is open, and why not."""
        through = f" through the proxy {self.proxy}" if self.proxy else ""
        state = f"closed ({self.why})" if self.why else "open"
        return f"The {self.what} {self.place}{through}: {state}."


async def findings(plan: NodePlan, live: bool) -> list[tuple[Level, str]]:
    """Return in sentences what is open and what is closed, and what to send to one's IT.

    live: peers will be asked to call this node. It is a fault if a node that is reached through
    relays alone reaches none.
    """
    found = await ways(plan)
    relays = [way for way in found if way.what == "relay"]
    cut_off = plan.address == RELAY and all(way.why for way in relays)
    told: list[tuple[Level, str]] = []
    for way in found:
        level: Level = "fault" if cut_off and way.what == "relay" else "warning"
        told.append((level if way.why else "note", way.sentence()))
    if relays and not live:
        told.append(("note", direct(plan)))
    if text := to_it(found):
        told.append(("note", text))
    return told


async def ways(plan: NodePlan) -> list[Way]:
    """Try the relays and the introducer of a mesh; return what is open and what is closed.

    A node without a key only opens a connection; no node's place at a relay is taken.
    """
    peers = plan.peers
    relays = {relay.address: "" for relay in peers.relays}
    if relays and (plan.state / IDENTITY / KEY_FILE).is_file():
        identity, trust = identity_in(plan.state, peers.mesh, plan.name), trust_of(peers)
        links = Links(
            relays_of(peers),
            lambda: showing(*identity.credentials()),
            lambda shown: trust.judge(shown, "")[0],
            connector(plan.settings.proxy),
        )
        relays = dict(await links.try_each())
    else:
        relays = {place: await _closed(plan, place) for place in relays}
    found = [await _way(plan, "relay", place, why) for place, why in relays.items()]
    if peers.introducer is not None:
        why = await _closed(plan, peers.introducer)
        found.append(await _way(plan, "introducer", peers.introducer, why))
    return found


def direct(plan: NodePlan) -> str:
    """Return what is known of connections from outside, in a sentence."""
    if plan.address == RELAY:
        return f"{plan.name} needs no connection from outside: peers call it through the relays."
    return (
        f"Whether {plan.address} is open from outside, only others can tell: --live lets the peers "
        "that run call this node."
    )


def to_it(found: list[Way]) -> str:
    """Return two sentences for the people who run the site's firewall; "" if all ways are open."""
    closed = [way for way in found if way.why]
    if not closed:
        return ""
    places = [(parse(way.place).host, parse(way.place).port) for way in closed]
    wanted = " and ".join(dict.fromkeys(f"{host}, TCP port {port}" for host, port in places))
    hosts = " and ".join(dict.fromkeys(host for host, _ in places))
    return (
        f"Send this to your IT: Please allow connections from {socket.gethostname()} out to "
        f"{wanted}; nothing has to come in. Please exempt {hosts} from TLS inspection, because "
        "both ends check each other's keys."
    )


async def _way(plan: NodePlan, what: Literal["relay", "introducer"], place: str, why: str) -> Way:
    proxy = _proxy(plan, parse(place))
    if why and not proxy and (unknown := await _unknown(parse(place).numeric)):
        why = unknown
    return Way(what, place, why, proxy)


def _proxy(plan: NodePlan, to: Endpoint) -> str:
    """Return the proxy through which a place is reached, without a password; "" for none."""
    setting, found = plan.settings.proxy, None
    try:
        if not to.loopback and setting != OFF:
            found = of_environment(to) if setting is None else read(setting)
    except (NoRelay, FednodeError):
        return ""  # why it is closed says what is wrong with the proxy
    return str(found) if isinstance(found, Through) else ""


async def _unknown(host: str) -> str:
    """Return that a name does not resolve here; "" if it does."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None)
    except OSError:
        return f"the name {host} does not resolve here"
    return ""


async def _closed(plan: NodePlan, place: str) -> str:
    """Return why no connection can be opened; "" if one can."""
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await connector(plan.settings.proxy)(parse(place))
    except TimeoutError:
        return f"no answer within {CONNECT_S:g} s"
    except NoRelay as fault:
        return str(fault)
    except OSError:
        return f"nobody answers at {place}"
    writer.close()
    return ""
