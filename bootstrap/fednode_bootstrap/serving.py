"""Serve an introducer until it is stopped; on request its port is a relay, too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from fednode.admission.service import (
    VISIT_MESSAGE_BYTES,
    VISIT_S,
    VISIT_STREAMS,
    IntroducerService,
    anyone,
)
from fednode.errors import IdentityError
from fednode.identity.certificate import shown_by
from fednode.identity.trust import Trust
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay import PING_S, Relay
from fednode.transports.tls import Tls
from fednode_bootstrap.introducer import Roster

QUIET_S: Final = 30.0


async def serve(
    book: Roster,
    listen: str,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    until: int = 0,
    quiet_s: float = QUIET_S,
    say: Callable[[str], None] = lambda _: None,
    relay: bool = False,
) -> None:
    """Serve newcomers until stopped; raise AddressError if the address cannot be listened on.

    until: if not 0, also stop once that many nodes hold leases that they need not renew yet and no
    node called for quiet_s. A node that did not get its answer calls again within that time. say:
    shows each enrolment and refusal. relay: connect nodes with leases on the same port.
    """

    trust = Trust(mesh=book.mesh, listed={}, mesh_key=book.key.public_key())
    relaying = Relay(trust.admits, lambda proof: _revoke(trust, proof)) if relay else None
    tls = Tls(
        shown_by(book.key, "introducer"),
        anyone,
        lambda *_: None,
        VISIT_S,
        relay=relaying,
        relay_judge=lambda certificate, _: trust.judge(certificate),
    )
    transport = GrpcTransport(tls, VISIT_STREAMS, VISIT_MESSAGE_BYTES)
    service = IntroducerService(book, transport.caller, transport.source, say)
    transport.add_service(service.register)
    watching = None
    if relaying is not None:
        watching = asyncio.ensure_future(_watch(book, trust, relaying))
    try:
        ready(await transport.listen(listen, None))
        enough = _enough(book, service, until, quiet_s) if until else asyncio.Event().wait()
        ends = [asyncio.ensure_future(end) for end in (stop.wait(), enough)]
        ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        for end in ended:
            end.result()
        if relaying is not None:
            await relaying.drain()
    finally:
        if watching is not None:
            watching.cancel()
        await transport.close()


async def _enough(book: Roster, service: IntroducerService, until: int, quiet_s: float) -> None:
    """Return once `until` nodes are settled and no node has called for quiet_s."""
    while True:
        service.called.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(quiet_s):
                await service.called.wait()
                continue
        if book.settled() >= until:
            return


async def _watch(book: Roster, trust: Trust, relay: Relay) -> None:
    """Let the relay end what is silent or revoked, for as long as the introducer runs."""
    while True:
        for proof in book.revocations():
            _revoke(trust, proof)
        relay.look(asyncio.get_running_loop().time())
        await asyncio.sleep(PING_S)


def _revoke(trust: Trust, proof: bytes) -> None:
    with contextlib.suppress(IdentityError):
        trust.take_revocation(proof)
