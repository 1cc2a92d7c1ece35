"""What `fednode check` finds around a node: its ports, its relays, and the peers that answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

from fednode.app.client import client_of, everyone, place_of, places_of
from fednode.app.plan import NodePlan
from fednode.errors import FednodeError, IdentityError, KeyRefused, Unreachable
from fednode.learn.learner import Learner
from fednode.observe.classes import compared
from fednode.observe.client import Client
from fednode.transports.address import RELAY, asked_at, parse
from fednode.transports.server import check_free
from fednode.wire.gen.status_pb2 import StatusReply

Finding = tuple[Literal["fault", "warning", "note"], str]
"""A sentence: a fault keeps the node from starting; a warning makes its figures wrong."""
CLOCK_S: Final = 5.0
"""Clocks may differ by so much, beyond the time that the question took."""
CLASSES_NAMED: Final = 1000
"""Most names in a sentence on classes."""


def port_findings(plan: NodePlan, running: bool) -> Iterator[Finding]:
    """Check the node's own address, and all that it would listen on unless it runs already."""
    address, settings = parse(plan.address), plan.settings
    if not address.relayed and not _resolves(address.numeric):
        yield (
            "note",
            f"This node tells its peers that it is at {plan.address}, and the name "
            f"{address.numeric} does not resolve here: if it does not for them, set advertise to "
            "an address that they reach.",
        )
    if running:
        return
    checks = list[Callable[[], object]]()
    if plan.listen != RELAY:
        checks.append(lambda: check_free(parse(plan.listen)))
    page = settings.page.listen
    if page is not None:
        from fednode.observe.web import admissible

        checks.append(lambda: admissible(page, settings.page.token or ""))
    for check in checks:
        try:
            check()
        except FednodeError as fault:
            yield from (("fault", line) for line in str(fault).splitlines())


async def runs(plan: NodePlan) -> bool:
    """Tell whether the node itself answers; raise IdentityError if its key was revoked."""
    try:
        async with client_of(plan.peers, plan.state) as client:
            own = asked_at(plan.listen, plan.name)
            return (await client.status(own)).name == plan.name
    except IdentityError:
        raise
    except FednodeError:
        return False


async def relay_findings(plan: NodePlan) -> list[Finding]:
    """Try the relays of the mesh; return which are open, and what to ask of the site's IT.

    It is a fault if a node that is reached through relays alone reaches none.
    """
    closed = dict[str, str]()
    async with client_of(plan.peers, plan.state) as client:
        for relay in plan.peers.relays:
            try:
                await client.health(relay.address, relay.name)
            except FednodeError as fault:
                closed[relay.address] = str(fault).rstrip(".")
    cut_off = plan.address == RELAY and len(closed) == len(plan.peers.relays)
    proxy = proxy_of(plan)
    through = f" through the proxy {proxy}" if proxy else ""
    findings = list[Finding]()
    for address in (relay.address for relay in plan.peers.relays):
        why = closed.get(address)
        if why is None:
            findings.append(("note", f"The relay {address}{through}: open."))
            continue
        host = parse(address).numeric
        if not proxy and not _resolves(host):
            why = f"the name {host} does not resolve here"
        text = f"The relay {address}{through}: closed ({why})."
        findings.append(("fault" if cut_off else "warning", text))
    return findings + [("note", text) for text in _to_it(list(closed))]


def proxy_of(plan: NodePlan) -> str:
    """Return host and port of the proxy to relays, without a password; "" for none."""
    url = plan.settings.proxy or getproxies().get("https", "")
    return urlsplit(url).netloc.rpartition("@")[2]


def _to_it(closed: list[str]) -> Iterator[str]:
    """Yield what to send to the people who run the site's firewall, if a relay is closed."""
    if closed:
        places = [(parse(place).host, parse(place).port) for place in closed]
        wanted = " and ".join(f"{host}, TCP port {port}" for host, port in places)
        hosts = " and ".join(dict.fromkeys(host for host, _ in places))
        yield (
            f"Send this to your IT: Please allow connections from {socket.gethostname()} out to "
            f"{wanted}; nothing has to come in. Please exempt {hosts} from TLS inspection, because "
            "both ends check each other's keys."
        )


async def peer_findings(
    plan: NodePlan, learner: Learner, ours: str, running: bool
) -> list[Finding]:
    """Return a sentence on each peer that is silent or not as this node is.

    ours: the fingerprint of this node's settings. running: the node answers itself, and names
    members beyond those of peers.yaml.
    """
    findings, classes = list[Finding](), dict[str, list[str]]()
    async with client_of(plan.peers, plan.state) as client:
        for peer, where in sorted((await _others(plan, client, running)).items()):
            began, address = time.monotonic(), RELAY if parse(where).relayed else where
            try:
                reply = await client.status(where)
            except FednodeError as fault:
                if isinstance(fault, Unreachable) and not isinstance(fault, KeyRefused):
                    findings.append(("note", f"{peer} at {address} does not answer yet."))
                else:
                    findings.append(("fault", f"{peer}: {fault}"))
                continue
            classes[peer], took_s = list(reply.classes), time.monotonic() - began
            unreached = {member.name: member.unreached for member in reply.peers}.get(plan.name)
            if unreached:
                findings.append(("fault", f"{peer} cannot reach {plan.name}: {unreached}."))
            if differing := _differing(plan, learner, ours, peer, reply):
                findings.append(("fault", f"{peer} at {address}: {differing}."))
            if text := _clock(reply.clock - time.time() + took_s / 2, took_s):
                findings.append(("warning", f"{peer} at {address}: {text}."))
    notes = compared(learner.classes, classes, CLASSES_NAMED) if plan.compares_classes else []
    return findings + [("note", text) for text in notes]


async def _others(plan: NodePlan, client: Client, running: bool) -> dict[str, str]:
    places = places_of(plan.peers)
    if running:
        places = dict(await everyone(client, list({**places, plan.name: place_of(plan)}.items())))
    places.pop(plan.name, None)
    return places


def _differing(plan: NodePlan, learner: Learner, ours: str, peer: str, reply: StatusReply) -> str:
    """Return in what a peer is not as this node is; "" if nothing differs."""
    there = {"name": reply.name, "mesh": reply.mesh, "policy": reply.policy}
    here = {"name": peer, "mesh": plan.peers.mesh, "policy": plan.policy.name}
    if reply.backbone:
        there["model"], here["model"] = reply.backbone[:12], learner.backbone[:12]
    differing = [
        f"{key} is {here[key]} here and {there[key]} there"
        for key in here
        if here[key] != there[key]
    ]
    if not differing and reply.fingerprint not in {"", ours}:
        return "its settings differ; start this node to see in which key"
    return "; ".join(differing)


def _clock(ahead_s: float, took_s: float) -> str:
    """Return by how much a peer's clock differs; "" if the two may be equal."""
    if abs(ahead_s) <= CLOCK_S + took_s / 2:
        return ""
    side = "ahead of" if ahead_s > 0 else "behind"
    return (
        f"its clock is {abs(ahead_s):.0f} s {side} this machine's, and certificates end by the "
        "clock"
    )


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
