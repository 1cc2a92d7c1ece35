"""Read addresses: host:port, where the host is a name, an IPv4 address or [an IPv6 address].

A node that takes no connections has the address `relay`: it is reached through relays alone. A
command writes `relay:NAME` for such a node.

Nodes and relays may be reached through a site's HTTP proxy (HTTP CONNECT), which resolves names.
gRPC itself honours no_proxy, and never asks a proxy for loopback.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import urlsplit

from fednode.core.settings import STRICT
from fednode.errors import AddressError
from fednode.transports.base import Address

ADDRESSES_MAX: Final = 1024
"""Addresses whose parts are kept, because a node reads the same addresses at each message."""

RELAY: Final = "relay"
"""The address of a node that takes no connections."""
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?", re.ASCII)
# A name of digits alone would be a port.
_BY_NAME: Final = re.compile(r"relay:(?![0-9]+$)([A-Za-z0-9][A-Za-z0-9-]{0,62})", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9.]+", re.ASCII)
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
NO_PROXY: Final = "off"
_PROXY: Final = "write it as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
_EXAMPLE: Final = "write it as host:port, such as 127.0.0.1:7700 or [::1]:7700"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A parsed address; an IPv6 host has no brackets here.

    relayed: the node takes no connections and is reached through relays alone; host is its name, or
    "" if the address does not tell it.
    """

    host: str
    port: int
    relayed: bool = False

    @property
    def loopback(self) -> bool:
        """Tell whether the address never leaves this machine.

        Names are not looked up; "localhost" counts as loopback.
        """
        if self.host.lower().rstrip(".") == "localhost":
            return True
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            return address.ipv4_mapped.is_loopback
        return address.is_loopback

    @property
    def numeric(self) -> str:
        """Return the host to bind or dial; localhost is 127.0.0.1, whatever a hosts file says."""
        return "127.0.0.1" if self.host.lower().rstrip(".") == "localhost" else self.host

    def __str__(self) -> str:
        if self.relayed:
            return f"{RELAY}:{self.host}" if self.host else RELAY
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RelayEntry:
    """A relay, through which nodes reach each other that take no connections."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str
    """The name in its certificate."""
    address: Address
    """host:port at which the nodes reach it."""


RELAYED: Final = Endpoint("", 0, relayed=True)
"""What `parse` returns for the address `relay`."""


def asked_at(address: Address, name: str) -> Address:
    """Return where a command asks a node: its address, or relay:NAME if it has none."""
    return f"{RELAY}:{name}" if address == RELAY and name else address


@functools.lru_cache(maxsize=ADDRESSES_MAX)
def parse(address: Address) -> Endpoint:
    """Return the endpoint of host:port or of "relay"; raise AddressError for any other text."""
    if address == RELAY:
        return RELAYED
    if match := _BY_NAME.fullmatch(address):
        return Endpoint(match[1], 0, relayed=True)
    host, colon, port = address.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise AddressError(f"the address {address[:80]!r} has no port from 0 to 65535; {_EXAMPLE}")
    bracketed = host.startswith("[") and host.endswith("]")
    inside = host[1:-1] if bracketed else host
    if bracketed:
        valid = _is_ip(inside, 6)
    elif _DIGITS.fullmatch(inside):
        valid = _is_ip(inside, 4)
    else:
        valid = len(inside) <= 253 and _NAME.fullmatch(inside) is not None
    if not valid:
        raise AddressError(f"the host of the address {address[:80]!r} is not valid; {_EXAMPLE}")
    return Endpoint(inside, int(port))


def target_of(endpoint: Endpoint) -> str:
    """Return gRPC's name of an address."""
    host = endpoint.numeric
    kind = "ipv6:" if ":" in host else "ipv4:" if host.replace(".", "").isdigit() else "dns:///"
    return f"{kind}{Endpoint(host, endpoint.port)}"


def _is_ip(text: str, version: int) -> bool:
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return False
    # A zone ("fe80::1%eth0") names an interface of one machine: no address for others.
    return parsed.version == version and "%" not in text


def check_proxy(url: str) -> None:
    """Raise AddressError for a setting `proxy` that cannot be used; it repeats no password."""
    if url == NO_PROXY:
        return
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as fault:
        raise AddressError(f"the proxy's URL has no valid port; {_PROXY}") from fault
    if parts.scheme != "http":
        kind = parts.scheme[:20]
        raise AddressError(f"a proxy of the kind {kind!r} cannot be used; {_PROXY}")
    if not parts.hostname or port is None:
        raise AddressError(f"the proxy's URL names no host, or no port; {_PROXY}")
    parse(str(Endpoint(parts.hostname, port)))


def proxy_options(
    proxy: str | None, to: Endpoint, relay: bool = False
) -> tuple[tuple[str, int | str], ...]:
    """Return gRPC's arguments of a channel.

    proxy: the setting; None leaves relays to the proxy of the environment (https_proxy), and calls
    nodes directly. relay: a relay is called.
    """
    if to.loopback or proxy == NO_PROXY or (proxy is None and not relay):
        return (("grpc.enable_http_proxy", 0),)
    return () if proxy is None else (("grpc.http_proxy", proxy),)
