"""A site's HTTP proxy, through which gRPC connects with nodes and relays (HTTP CONNECT).

The proxy resolves names. gRPC itself honours no_proxy, and never asks a proxy for loopback.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fednode.errors import AddressError
from fednode.transports.address import Endpoint, parse

OFF: Final = "off"
EXAMPLE: Final = "write it as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"


def check(url: str) -> None:
    """Raise AddressError for a setting `proxy` that cannot be used; it repeats no password."""
    if url == OFF:
        return
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as fault:
        raise AddressError(f"the proxy's URL has no valid port; {EXAMPLE}") from fault
    if parts.scheme != "http":
        kind = parts.scheme[:20]
        raise AddressError(f"a proxy of the kind {kind!r} cannot be used; {EXAMPLE}")
    if not parts.hostname or port is None:
        raise AddressError(f"the proxy's URL names no host, or no port; {EXAMPLE}")
    parse(str(Endpoint(parts.hostname, port)))


def options(
    proxy: str | None, to: Endpoint, relay: bool = False
) -> tuple[tuple[str, int | str], ...]:
    """Return gRPC's arguments of a channel.

    proxy: the setting; None leaves relays to the proxy of the environment (https_proxy), and calls
    nodes directly. relay: a relay is called.
    """
    if to.loopback or proxy == OFF or (proxy is None and not relay):
        return (("grpc.enable_http_proxy", 0),)
    return () if proxy is None else (("grpc.http_proxy", proxy),)
