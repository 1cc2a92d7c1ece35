"""Proxies: who goes through one, and one sentence for each thing that goes wrong there."""

from __future__ import annotations

import asyncio

import pytest

from fednode.errors import AddressError
from fednode.transports.address import parse
from fednode.transports.opening import NoRelay, RelayAt
from fednode.transports.ports import free_ports
from fednode.transports.proxy import connector, of_environment, read
from tests.unit.transports.a_proxy import AProxy, proxying
from tests.unit.transports.relays import GUARD_S, NAMES, Node, raised

KINDS = ["http", "socks5"]
HOST = "relay.test"


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


async def refused(url: str, to: str) -> str:
    with pytest.raises(NoRelay) as fault:
        await connector(url)(parse(to))
    return str(fault.value)


@pytest.mark.parametrize("password", ["", "se:cret@"])
@pytest.mark.parametrize("kind", KINDS)
async def test_nodes_reach_each_other_through_a_relay_behind_a_proxy(
    kind: str, password: str
) -> None:
    """The proxy resolves the relay's name, which this machine does not know."""
    user = "me" if password else ""
    given = {"user": user, "password": password, "names": {HOST: "127.0.0.1"}}
    async with raised() as relay, proxying(**given) as proxy:
        place = f"{HOST}:{parse(relay.at.address).port}"
        login = "me:se%3Acret%40@" if password else ""
        connect = connector(f"{kind}://{login}{proxy.at}")
        at = RelayAt(place, relay.at.id)
        node, caller = Node("n1", at, connect=connect), Node("n2", at, connect=connect)
        await node.listen("relay", who)
        assert await caller.send("relay", b"x", GUARD_S, "n1") == NAMES["n2"].encode()
        assert set(proxy.asked) == {place}
        for one in (node, caller):
            await one.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_password_is_asked_for_and_a_wrong_one_refused(kind: str) -> None:
    async with proxying(user="me", password="right") as proxy:
        text = await refused(f"{kind}://{proxy.at}", f"{HOST}:443")
        assert f"the proxy {proxy.at} asks for a user and password" in text
        text = await refused(f"{kind}://me:wrong@{proxy.at}", f"{HOST}:443")
        assert f"the proxy {proxy.at} refuses the user or password" in text
        assert "wrong" not in text


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_proxy_forbids_or_does_not_reach_is_said(kind: str) -> None:
    async with proxying(forbidden={HOST}) as proxy:
        text = await refused(f"{kind}://{proxy.at}", f"{HOST}:443")
        assert text == f"the proxy {proxy.at} forbids {HOST}:443: ask IT to allow connections to it"
        text = await refused(f"{kind}://{proxy.at}", "192.0.2.1.invalid:443")
        assert "cannot reach 192.0.2.1.invalid:443: it does not know the name" in text


async def test_no_proxy_there_is_said() -> None:
    where = f"127.0.0.1:{free_ports(1)[0]}"
    text = await refused(f"http://{where}", f"{HOST}:443")
    assert text == f"no proxy answers at {where}: check `proxy`, or HTTPS_PROXY"


async def test_what_is_no_proxy_is_said() -> None:
    class Strange(AProxy):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"220 mail\x1b[2J ready\r\n")
            writer.close()

    server = await asyncio.start_server(Strange().serve, "127.0.0.1", 0)
    where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    text = await refused(f"http://{where}", f"{HOST}:443")
    assert "does not answer as a proxy does" in text
    assert "\x1b" not in text
    server.close()


async def test_loopback_and_off_use_no_proxy() -> None:
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    where = parse(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for connect in (connector("http://192.0.2.1:1"), connector("off"), connector(None, {})):
        _, writer = await connect(where)
        writer.close()
    server.close()
    for writer in taken:
        writer.close()


@pytest.mark.parametrize(
    ("environment", "to", "found"),
    [
        ({}, "relay.test:443", None),
        ({"HTTPS_PROXY": "http://p:1"}, "relay.test:443", "p:1"),
        ({"https_proxy": "p:1"}, "relay.test:443", "p:1"),
        ({"ALL_PROXY": "socks5h://p:2"}, "relay.test:443", "p:2"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other,.test"}, "relay.test:443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "relay.test:444"}, "relay.test:443", "p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "relay.test:443", None),
        ({"HTTP_PROXY": "http://p:1"}, "relay.test:443", None),
    ],
)
def test_the_environment_names_proxies(
    environment: dict[str, str], to: str, found: str | None
) -> None:
    chosen = of_environment(parse(to), environment)
    assert (None if chosen is None else str(chosen)) == found


def test_a_proxy_of_the_environment_that_cannot_be_used_is_said() -> None:
    with pytest.raises(NoRelay, match="HTTPS_PROXY cannot be used: a proxy of the kind 'https'"):
        of_environment(parse("relay.test:443"), {"HTTPS_PROXY": "https://p:1"})


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://me:secret@p:1", "a proxy of the kind 'https' is not known"),
        ("http://me:secret@p", "names no host, or no port"),
        ("http://me:secret@p:x", "no valid port"),
        ("http://me:secret@p:99999", "no valid port"),
        ("http://:1", "names no host"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_their_password(url: str, text: str) -> None:
    with pytest.raises(AddressError, match=text) as fault:
        read(url)
    assert "secret" not in str(fault.value)
    assert "secret" not in repr(read("http://me:secret@p:1"))
