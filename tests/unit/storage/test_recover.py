"""A damaged journal: which rounds come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.disk import Disk
from fednode.storage.journal import SNAPSHOTS_KEPT, Journal, SnapshotRow
from fednode.storage.recover import opened, recover
from fednode.storage.store import Store, read_snapshot
from tests.unit.storage.stored import FACTS, files, filled, snapshot

PAGE = 4096


def header(data: bytes) -> bytes:
    return b"\0garbage" * 25 + data[200:]


def schema(data: bytes) -> bytes:
    return b"\xff" * PAGE + data[PAGE:]


def middle(data: bytes) -> bytes:
    """Spoil the page of the settings, which says nothing of rounds."""
    at = data.index(b"policy.name") // PAGE * PAGE
    return data[:at] + b"\x5a" * PAGE + data[at + PAGE :]


def newest_row(data: bytes) -> bytes:
    """Spoil the header and the row of the newest snapshot."""
    at = data.rindex(b'{"best_round": 5')
    return b"\0garbage" * 25 + data[200:at] + b"#" * 40 + data[at + 40 :]


@pytest.mark.parametrize(
    ("spoil", "back"), [(header, 5), (schema, 5), (middle, 5), (newest_row, 4)]
)
def test_the_newest_whole_round_comes_back(
    tmp_path: Path, spoil: Callable[[bytes], bytes], back: int
) -> None:
    filled(tmp_path, 5).close()
    path = tmp_path / "journal.db"
    before = path.read_bytes()
    path.write_bytes(spoil(before))
    store = opened(tmp_path)
    assert store.warnings == [
        f"{path} was damaged and is now journal.db.damaged; going on from round {back}"
    ]
    assert (tmp_path / "journal.db.damaged").read_bytes() == spoil(before)
    assert read_snapshot(tmp_path) == snapshot(back)
    store.bind(FACTS)
    assert store.latest() == snapshot(back)
    store.commit(snapshot(back + 1))
    assert store.latest() == snapshot(back + 1)
    store.close()


def test_a_directory_that_is_sound_new_or_beyond_repair_is_not_rebuilt(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    with pytest.raises(StateError, match="is in use"):
        opened(tmp_path / "s")
    store.close()
    filled(tmp_path / "s", 2).close()
    store = opened(tmp_path / "s")
    assert (store.latest(), store.warnings) == (snapshot(2), [])
    store.close()
    path = tmp_path / "s" / "journal.db"
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(StateError, match=f"No round in {path} is whole: restore"):
        opened(tmp_path / "s")
    assert path.read_bytes() == b"\xff" * path.stat().st_size


def test_a_round_whose_file_is_lost_is_skipped(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    path = tmp_path / "journal.db"
    path.write_bytes(header(path.read_bytes()))
    newest = max(files(tmp_path), key=lambda one: one.stat().st_mtime_ns)
    newest.unlink()
    store = opened(tmp_path)
    assert store.latest() == snapshot(4)
    assert store.warnings[0].endswith("; going on from round 4, and 1 newer round is lost")
    store.close()


def test_of_many_whole_rounds_the_newest_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.bind(FACTS)
    kept: dict[str, bytes] = {}
    rows: dict[int, SnapshotRow] = {}
    for number in range(1, SNAPSHOTS_KEPT + 4):
        store.commit(snapshot(number))
        kept |= {file.name: file.read_bytes() for file in files(tmp_path)}
        reader = Journal.look(tmp_path / "journal.db")
        rows |= {row.round: row for row in reader.snapshots()}
        figures = reader.history(0, 99)
        reader.close()
    store.close()
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    for name, content in kept.items():
        (tmp_path / "tensors" / name).write_bytes(content)
    path, newest = tmp_path / "journal.db", SNAPSHOTS_KEPT + 3
    journal = Journal.open(path, Disk())
    journal.fill(FACTS, list(rows.values()), figures)
    journal.close()
    path.write_bytes(header(path.read_bytes()))
    assert recover(tmp_path) == (newest, 0)
    reader = Journal.look(path)
    assert [row.round for row in reader.snapshots()] == [newest, newest - 1, newest - 2]
    reader.close()
