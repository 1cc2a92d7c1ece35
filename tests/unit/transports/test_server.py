"""The sockets of a server lie in a private folder of this user; ports that are given are free."""

from __future__ import annotations

import socket
import stat
import tempfile
from pathlib import Path

import pytest

from fednode.errors import AddressError
from fednode.transports import ports, server
from fednode.transports.ports import PORTS, free_ports


@pytest.mark.parametrize("place", ["there", "x" * 90])
def test_a_folder_of_sockets_is_made_wherever_tmpdir_leads(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, there = tmp_path / "usual", tmp_path / place
    monkeypatch.setattr(server, "PLAIN", str(usual))
    monkeypatch.setattr(server, "PLACE_BYTES", len(str(tmp_path)) + 50)
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    for folder in (usual, there):
        folder.mkdir()
    with server.socket_folder() as made:
        assert Path(made).parent == (there if place == "there" else usual)
        assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700
    monkeypatch.setattr(tempfile, "tempdir", "/gone")
    with pytest.raises(AddressError, match=r"no place for .* sockets .*: No such file"):
        server.socket_folder()


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
