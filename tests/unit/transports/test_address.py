"""Addresses: what is read, what is refused, what stays on this machine."""

from __future__ import annotations

import pytest

from fednode.errors import AddressError
from fednode.transports.address import Endpoint, parse, target_of


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7700", "127.0.0.1", 7700),
        ("[::1]:0", "::1", 0),
        ("[2001:db8::7]:65535", "2001:db8::7", 65535),
        ("localhost:7700", "localhost", 7700),
        ("node-1.mesh.example:80", "node-1.mesh.example", 80),
        ("node_1.:80", "node_1.", 80),
    ],
)
def test_hosts_of_all_kinds_are_read(text: str, host: str, port: int) -> None:
    assert parse(text) == Endpoint(host, port)
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "a", "a:", "a:b", "a:-1", "a:65536", "a:٣", "a:1 ", "a:000001"]
)
def test_an_address_needs_a_port(text: str) -> None:
    with pytest.raises(AddressError, match="has no port from 0 to 65535; write it as host:port"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [":1", "a b:1", "-a:1", "::1:1", "[::1:1", "[127.0.0.1]:1", "[fe80::1%eth0]:1", "1.2.3:1",
     "127.0.0.256:1", "a..b:1", "é:1", "http://a:1", "a/b:1", "[]:1", f"{'a' * 64}:1",
     f"{'a.' * 130}b:1", "a\n:1"],
)  # fmt: skip
def test_a_host_must_be_one(text: str) -> None:
    with pytest.raises(AddressError, match=r"the host of the address .* is not valid; write it as"):
        parse(text)


def test_a_long_address_is_quoted_in_part() -> None:
    with pytest.raises(AddressError) as raised:
        parse("x" * 10_000)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("localhost:1", True),
        ("LocalHost.:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("[::ffff:10.0.0.1]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example:1", False),
        ("node-1:1", False),
    ],
)
def test_only_what_stays_on_this_machine_is_loopback(text: str, loopback: bool) -> None:
    assert parse(text).loopback is loopback


def test_localhost_is_dialled_without_a_lookup() -> None:
    assert parse("localhost:7").numeric == "127.0.0.1"
    assert parse("[::1]:7").numeric == "::1"


def test_a_wrong_address_is_refused_each_time_and_a_right_one_is_read_once() -> None:
    for _ in range(2):
        with pytest.raises(AddressError):
            parse("127.0.0.1")
    assert parse("127.0.0.1:7700") is parse("127.0.0.1:7700")


def test_a_node_that_takes_no_connections_is_reached_by_relay() -> None:
    for text, host in (("relay", ""), ("relay:hospital-b", "hospital-b")):
        assert parse(text) == Endpoint(host, 0, relayed=True)
        assert str(parse(text)) == text
        assert not parse(text).loopback
    assert parse("relay:443") == Endpoint("relay", 443)
    for wrong in ("relay:", "relay:-a", "relay:a.b", f"relay:{'a' * 64}"):
        with pytest.raises(AddressError):
            parse(wrong)


def test_a_target_tells_grpc_whether_to_look_a_name_up() -> None:
    assert target_of(parse("localhost:7")) == "ipv4:127.0.0.1:7"
    assert target_of(parse("[::1]:7")) == "ipv6:[::1]:7"
    assert target_of(parse("node-1.example:7")) == "dns:///node-1.example:7"
