"""peers.yaml is read again once it no longer changes, and each content once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.settings.again import PeersFile

ONE = "mesh: m\ninsecure: true\npeers:\n  - {name: a, address: '127.0.0.1:7101'}\n"
TWO = ONE + "  - {name: b, address: '127.0.0.1:7102'}\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "peers.yaml"


def names(file: PeersFile) -> list[str] | None:
    """Return the names in the file, where a look finds something new."""
    peers = file.look()
    return None if peers is None else [peer.name for peer in peers.peers]


def write(place: Path, text: str, at: int) -> None:
    place.write_text(text)
    os.utime(place, (at, at))


def test_a_change_counts_at_the_second_look_that_finds_the_same_file(place: Path) -> None:
    file = PeersFile(place)
    write(place, ONE, 1)
    assert [names(file) for _ in range(3)] == [None, ["a"], None]
    write(place, TWO[:-9], 2)  # half written
    assert names(file) is None
    write(place, TWO, 3)
    assert [names(file) for _ in range(3)] == [None, ["a", "b"], None]
    write(place, TWO, 4)  # another time, and the same content
    assert [names(file) for _ in range(3)] == [None, None, None]


def test_a_file_that_is_wrong_or_missing_is_named_once(place: Path) -> None:
    file = PeersFile(place)
    write(place, ONE, 1)
    assert [names(file) for _ in range(2)] == [None, ["a"]]
    write(place, "mesh: [", 2)
    assert names(file) is None
    with pytest.raises(ConfigError, match="is not valid YAML"):
        file.look()
    write(place, "mesh: [", 3)
    assert [names(file) for _ in range(3)] == [None, None, None]
    place.unlink()
    assert names(file) is None
    with pytest.raises(ConfigError, match="There is no file"):
        file.look()
    assert names(file) is None
    write(place, ONE, 4)
    assert [names(file) for _ in range(2)] == [None, ["a"]]
