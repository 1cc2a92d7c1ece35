"""Open connections through a site's proxy: HTTP CONNECT, SOCKS5 or SOCKS4.

Relays and the introducer are reached through it; peers and loopback never are. The proxy resolves
names. gRPC's own support of proxies does not apply, because fednode dials before gRPC does.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError, ProxyType
from python_socks.async_.asyncio import Proxy

from fednode.core import foreign
from fednode.errors import AddressError
from fednode.transports.address import Endpoint, parse
from fednode.transports.opening import Connect, NoRelay, Streams, open_directly
from fednode.transports.session import CHUNK

OFF: Final = "off"
KINDS: Final = {
    "http": ProxyType.HTTP,
    "socks5": ProxyType.SOCKS5,
    "socks5h": ProxyType.SOCKS5,
    "socks4": ProxyType.SOCKS4,
}
CONNECT_S: Final = 8.0
"""How long a proxy may take to connect."""
EXAMPLE: Final = "write it as http://HOST:PORT, socks5://HOST:PORT or socks4://HOST:PORT"
# Answers of HTTP proxies (RFC 9110); 401 is tinyproxy's for a wrong password.
PASSWORD: Final = frozenset({401, 407})
FORBIDDEN: Final = frozenset({403, 405})
UNREACHED: Final = frozenset({404, 500, 502, 503, 504})
# Answers of SOCKS5 proxies (RFC 1928, section 6).
SOCKS_FORBIDDEN: Final = 2
SOCKS_UNREACHED: Final = frozenset({1, 3, 4, 5, 6})


@dataclass(frozen=True, slots=True)
class Through:
    """A proxy. user, password: "" for none; nothing shows them."""

    kind: ProxyType
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        """Return the proxy's address alone, which may be shown."""
        return str(Endpoint(self.host, self.port))

    __str__ = __repr__

    async def connect(self, to: Endpoint) -> Streams:
        """Open a connection; raise NoRelay with a sentence that tells what the proxy says."""
        proxy = Proxy(
            self.kind, self.host, self.port, self.user or None, self.password or None, rdns=True
        )
        try:
            opened = await proxy.connect(to.numeric, to.port, timeout=CONNECT_S)
        except ProxyTimeoutError as fault:
            text = f"the proxy {self} did not connect to {to} within {CONNECT_S:g} s"
            raise NoRelay(text) from fault
        except (ProxyConnectionError, OSError) as fault:
            text = f"no proxy answers at {self}: check `proxy`, or HTTPS_PROXY"
            raise NoRelay(text) from fault
        except ProxyError as fault:
            raise NoRelay(self._sentence(to, fault)) from fault
        return await asyncio.open_connection(sock=opened, limit=CHUNK)

    def _sentence(self, to: Endpoint, fault: ProxyError) -> str:
        """Return what a proxy's refusal means."""
        code, text = fault.error_code, str(fault)
        socks = self.kind != ProxyType.HTTP
        if code in PASSWORD or (socks and "uthentication" in text):
            if self.user:
                return f"the proxy {self} refuses the user or password: set them in FEDNODE_PROXY"
            return (
                f"the proxy {self} asks for a user and password: set FEDNODE_PROXY to "
                "http://USER:PASSWORD@HOST:PORT; docs/networks.md tells what to do about NTLM and "
                "Kerberos"
            )
        if (code == SOCKS_FORBIDDEN) if socks else (code in FORBIDDEN):
            return f"the proxy {self} forbids {to}: ask IT to allow connections to it"
        if code in (SOCKS_UNREACHED if socks else UNREACHED):
            return (
                f"the proxy {self} cannot reach {to}: it does not know the name, or nobody answers "
                "there"
            )
        said = foreign.line(text, 80) or "nothing"
        return f"what listens at {self} does not answer as a proxy does (it says {said!r})"


def read(url: str) -> Through:
    """Return the proxy of a URL; raise AddressError, which does not repeat a password."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as fault:
        raise AddressError(f"the proxy's URL has no valid port; {EXAMPLE}") from fault
    if parts.scheme not in KINDS:
        raise AddressError(f"a proxy of the kind {parts.scheme[:20]!r} is not known; {EXAMPLE}")
    if not parts.hostname or port is None:
        raise AddressError(f"the proxy's URL names no host, or no port; {EXAMPLE}")
    where = parse(str(Endpoint(parts.hostname, port)))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Through(KINDS[parts.scheme], where.host, port, user, password)


def connector(setting: str | None, environment: Mapping[str, str] | None = None) -> Connect:
    """Return what opens connections to relays and the introducer.

    setting: `proxy` of node.yaml. environment: of HTTPS_PROXY and NO_PROXY; None for the process's
    own. Raise AddressError for a URL that cannot be used.
    """
    if setting == OFF:
        return open_directly
    if setting is not None:
        fixed = read(setting)

        async def through(to: Endpoint) -> Streams:
            return await (open_directly(to) if to.loopback else fixed.connect(to))

        return through

    async def by_environment(to: Endpoint) -> Streams:
        proxy = None if to.loopback else of_environment(to, environment)
        return await (open_directly(to) if proxy is None else proxy.connect(to))

    return by_environment


def of_environment(to: Endpoint, environment: Mapping[str, str] | None = None) -> Through | None:
    """Return the proxy that the environment names for an endpoint; None if there is none.

    Raise NoRelay if the environment names a proxy that cannot be used.
    """
    proxies = (
        urllib.request.getproxies()
        if environment is None
        else {
            key.lower().removesuffix("_proxy"): value
            for key, value in environment.items()
            if key.lower().endswith("_proxy") and value
        }
    )
    url = proxies.get("https") or proxies.get("all")
    if not url or _bypassed(to, proxies):
        return None
    try:
        return read(url)
    except AddressError as fault:
        raise NoRelay(f"HTTPS_PROXY cannot be used: {fault}") from fault


def _bypassed(to: Endpoint, proxies: Mapping[str, str]) -> bool:
    """Tell whether NO_PROXY names an endpoint."""
    place = str(to)
    return bool(urllib.request.proxy_bypass_environment(place, dict(proxies)))  # type: ignore[attr-defined]
