"""Free ports: distinct, in range, and nothing listens on them."""

from __future__ import annotations

import socket

import pytest

from fednode.errors import AddressError
from fednode.transports import ports
from fednode.transports.ports import PORTS, free_ports


def test_ports_are_distinct_and_can_be_listened_on() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert set(found) <= set(PORTS)
    for port in found[:3]:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_a_port_that_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        monkeypatch.setattr(ports, "PORTS", range(min(first, second), max(first, second) + 1))
        drawn = iter([first, second])
        monkeypatch.setattr(ports, "SystemRandom", lambda: type("", (), {
            "choice": lambda self, among: next(drawn)})())  # fmt: skip
        assert free_ports(1) == [second]


def test_too_few_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    (only,) = free_ports(1)
    monkeypatch.setattr(ports, "PORTS", range(only, only + 1))
    with pytest.raises(AddressError, match=rf"Only 1 free ports of 2 .* between {only} and {only}"):
        free_ports(2)
