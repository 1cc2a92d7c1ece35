"""gRPC's credentials from a node's own certificate and its roster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from fednode.identity.certificates import Credential
from fednode.identity.roster import Guest, Member, Roster

Own = Callable[[], Credential]
"""Returns what this node shows; another object once it was renewed."""


def server_credentials(own: Own, roster: Roster) -> Any:
    """Return credentials that demand a certificate, and follow renewals and invitations.

    gRPC asks at each handshake. It builds new contexts for each answer, so it is told nothing as
    long as nothing changed.
    """

    current: tuple[Credential, int] | None = None

    def fetch() -> Any:
        nonlocal current
        now = own(), roster.version
        if now == current:
            return None
        current = now
        pair = (now[0].key, now[0].chain)
        return grpc.ssl_server_certificate_configuration([pair], roster.anchors)

    return grpc.dynamic_ssl_server_credentials(fetch(), fetch, require_client_authentication=True)


def channel_to(
    target: str, shown: Credential, callee: tuple[str, bytes], options: Sequence[tuple[str, Any]]
) -> Any:
    """Return a channel that shows a certificate. callee: as `Roster.callee` returns it."""
    host, trusted = callee
    return grpc.aio.secure_channel(
        target,
        grpc.ssl_channel_credentials(trusted, shown.key, shown.chain),
        options=(*options, ("grpc.ssl_target_name_override", host)),
    )


def chain_of(context: Any) -> bytes:
    """Return the certificates that a caller has shown, its own first, in PEM.

    At a server, gRPC's chain lacks the caller's own certificate: it begins with the sponsor's.
    """
    shown = context.auth_context()
    return b"".join(shown.get("x509_pem_cert", ())) + b"".join(shown.get("x509_pem_cert_chain", ()))


def caller_of(context: Any, roster: Roster) -> Member | Guest | None:
    return roster.identify(chain_of(context))
