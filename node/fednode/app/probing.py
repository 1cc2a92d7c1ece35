"""`fednode check --live`: the peers call this node back, and tell the time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from fednode.app.network import client_of, identity_in, join
from fednode.app.plan import NodePlan
from fednode.errors import FednodeError, Unreachable
from fednode.observe.admin import HealthService
from fednode.observe.client import Client
from fednode.runtime.driver import Door

CLOCK_S: Final = 5.0
"""Clocks may differ by so much, beyond the time that the question took."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a peer said. fault: why it does not reach this node; "" if it does.

    ahead_s: by how much its clock is ahead of this machine's; 0 if they may be equal.
    """

    peer: str
    address: str = ""
    fault: str = ""
    ahead_s: float = 0.0

    def sentence(self, name: str) -> str:
        """Return what it means for the node of this name."""
        place = f" at {self.address}" if self.address else ""
        if self.fault:
            return f"{self.peer} cannot reach {name}{place}: {self.fault}."
        clocks = "the clocks agree"
        if self.ahead_s:
            side = "ahead of" if self.ahead_s > 0 else "behind"
            clocks = (
                f"its clock is {abs(self.ahead_s):.0f} s {side} this machine's, and leases and "
                "certificates end by the clock"
            )
        return f"{self.peer} reaches {name}{place}; {clocks}."


async def runs(plan: NodePlan) -> bool:
    """Tell whether the node itself answers at its address."""
    try:
        async with client_of(plan.peers, plan.state) as client:
            own = plan.settings.listen or plan.address
            return (await client.status(own)).name == plan.name
    except FednodeError:
        return False


async def probe(plan: NodePlan, running: bool) -> list[Probed]:
    """Let every peer that runs call this node back; peers that do not answer are left out.

    running: the node answers itself; otherwise this process answers in its place for the moment, as
    a node does that is loading. Raise ConfigError without a key, AddressError if it cannot listen.
    """
    place = contextlib.nullcontext() if running else _answering(plan)
    async with client_of(plan.peers, plan.state) as client, place:
        asked = [
            _probed(client, peer.name, peer.address, plan.name)
            for peer in plan.peers.peers
            if peer.name != plan.name
        ]
        return [one for one in await asyncio.gather(*asked) if one is not None]


async def _probed(client: Client, peer: str, address: str, name: str) -> Probed | None:
    began, clock = time.monotonic(), time.time()
    try:
        reply = await client.probe(address, name)
    except Unreachable:
        return None
    except FednodeError as fault:
        return Probed(peer, fault=str(fault).rstrip("."))
    took = time.monotonic() - began
    ahead = reply.clock - (clock + took / 2)
    unequal = abs(ahead) > CLOCK_S + took / 2
    return Probed(peer, reply.address, reply.fault, ahead if unequal else 0.0)


@contextlib.asynccontextmanager
async def _answering(plan: NodePlan) -> AsyncIterator[None]:
    """Listen at the node's address, with its key, and answer its peers' health checks."""
    if not plan.peers.insecure:
        identity_in(plan.state, plan.peers.mesh, plan.name)  # `join` would make a key
    transport, health = join(plan).transport, HealthService()
    transport.add_service(health.register)
    await health.loading()
    try:
        await transport.listen(plan.settings.listen or plan.address, Door().on_frame)
        yield
    finally:
        await transport.close()
