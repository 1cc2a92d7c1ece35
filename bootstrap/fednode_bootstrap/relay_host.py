"""Run a relay as a program of its own: its key, whom it admits, its log, health and metrics.

relay.key       the relay's key
believed        revocations that nodes passed on, one line each
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.app.network import KEPT, trust_of
from fednode.errors import ConfigError, IdentityError
from fednode.identity import keys
from fednode.identity.certificate import shown_by
from fednode.identity.trust import Trust
from fednode.settings.peers import load_peers
from fednode.storage.disk import Disk, alone, keep_private
from fednode.transports.address import parse
from fednode.transports.relay import Relay
from fednode.transports.tls import Tls
from fednode_bootstrap.relay_pages import Pages

KEY_FILE: Final = "relay.key"
LOCK_FILE: Final = "relay.lock"
SHOWN_MAX: Final = 1024
"""Sources of refused connections that are counted apart."""
LOG: Final = logging.getLogger("fednode")
Say = Callable[[str], None]


def key_in(state: Path) -> Ed25519PrivateKey:
    """Return the relay's key in a folder; make one if there is none."""
    Disk().make_folder(state)
    keep_private(state)
    path = state / KEY_FILE
    with alone(state / LOCK_FILE):
        return keys.load(path) if path.exists() else keys.create(path)


class Admission:
    """Whose keys a relay admits: those of peers.yaml, and those with a lease of its mesh key."""

    def __init__(self, file: Path, state: Path) -> None:
        """Read peers.yaml; raise ConfigError if it is wrong. state: where revocations are kept."""
        peers = load_peers(file)
        if peers.insecure:
            raise ConfigError(
                f"{file} says `insecure: true`, and a relay knows nodes by their keys: give ids."
            )
        self.mesh = peers.mesh
        self.trust: Trust = trust_of(peers)
        self.trust.keep_in(state / KEPT)

    def revoke(self, proof: bytes) -> None:
        """Take a revocation that a node passes on, if the mesh key signed it."""
        with contextlib.suppress(IdentityError):
            update = self.trust.take_revocation(proof)
            if update.name:
                LOG.debug("the key of %s is revoked", update.name)


def raise_descriptors() -> None:
    """Let this process open as many connections as the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(
    file: Path,
    state: Path,
    listen: str,
    stop: asyncio.Event,
    say: Say,
    metrics: str | None = None,
    mbit: float = 0.0,
) -> None:
    """Run a relay until stopped, then let streams end for some time.

    file: peers.yaml. say: shows a line of the log. Raise AddressError if an address cannot be
    listened on, ConfigError if peers.yaml is wrong.
    """
    raise_descriptors()
    key, admission = key_in(state), Admission(file, state)
    relay = Relay(admission.trust.admits, admission.revoke, mbit)
    pages = Pages(relay)

    def judge(certificate: bytes, who: str) -> tuple[str, str]:
        return admission.trust.judge(certificate)

    told = Told(say)
    tls = Tls(shown_by(key, "relay"), judge, told.note, relay=relay)
    watching = asyncio.ensure_future(relay.watch())
    try:
        at = await tls.listen(parse(listen))
        say(f"relay of {admission.mesh} at {parse(listen).at(at)}, id {keys.node_id(key)}")
        if metrics is not None:
            say(f"health and metrics: {await pages.listen(metrics)}/metrics")
        await stop.wait()
        pages.draining = True
        say(f"stopping: {relay.streams} streams may end; no new ones are taken")
        await relay.drain()
        counts = relay.counts
        say(f"stopped after {counts.streams:,} streams and {counts.bytes:,} bytes")
    finally:
        watching.cancel()
        await pages.close()
        await tls.close()


class Told:
    """Shows refused connections: the first of each kind and source, and then each tenfold."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._counts: dict[tuple[str, str], int] = {}

    def note(self, kind: str, who: str, text: str) -> None:
        """Note a refused connection."""
        if len(self._counts) >= SHOWN_MAX and (kind, who) not in self._counts:
            who = "others"
        count = self._counts[kind, who] = self._counts.get((kind, who), 0) + 1
        if str(count).strip("0") == "1":
            self._say(f"refused: {text}" + (f" ({count:,} times)" if count > 1 else ""))
