"""Damaged state directories: what is damaged is named, and the last sound round is used."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.store import Store, newest, read_snapshot
from tests.unit.storage.stored import file_of, files, filled, snapshot


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "is no safetensors file"),
        (lambda path: path.write_bytes(b""), "is no safetensors file"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1"),
            "does not match its digest",
        ),
        (lambda path: path.unlink(), "is missing"),
    ],
)
def test_a_damaged_file_is_named_and_the_round_before_is_used(
    tmp_path: Path, harm: object, reason: str
) -> None:
    filled(tmp_path, 5).close()
    path = file_of(tmp_path, 5)
    assert callable(harm)
    harm(path)
    store = Store(tmp_path)
    assert store.latest() == snapshot(4)
    (warning,) = store.warnings
    assert warning.startswith(f"round 5 is damaged: {path} {reason}")
    assert warning.endswith("going on from round 4")
    store.commit(snapshot(5))
    assert [row.round for row in store.history(0, 10)] == [1, 2, 3, 4, 5]
    store.close()
    again = Store(tmp_path)
    assert again.latest() == snapshot(5)
    assert again.warnings == [], "the damaged row was replaced"
    again.close()


def test_an_edited_row_is_named_and_the_round_before_is_used(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    with sqlite3.connect(tmp_path / "journal.db") as rows:
        rows.execute("update snapshots set body = replace(body, '0.5', '0.9') where round = 5")
    rows.close()
    store = Store(tmp_path)
    assert store.latest() == snapshot(4)
    assert "round 5 is damaged: its row in" in store.warnings[0]
    store.close()


def test_where_no_round_is_whole_nothing_is_used(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    for path in files(tmp_path):
        path.write_bytes(b"not tensors")
    store = Store(tmp_path)
    with pytest.raises(StateError, match=r"round 3 is damaged.*round 2.*round 1.*backup"):
        store.latest()
    store.close()


@pytest.mark.parametrize("content", [b"no database at all, but rather long" * 30, b"short"])
def test_a_journal_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / "journal.db").write_bytes(content)
    advice = r"journal\.db is damaged.*next start goes on from the newest round"
    with pytest.raises(StateError, match=advice):
        Store(tmp_path)


def test_a_reader_is_told_of_damaged_newer_rounds(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    path = file_of(tmp_path, 5)
    path.write_bytes(b"torn")
    found, notes = newest(tmp_path)
    assert found == snapshot(4) == read_snapshot(tmp_path)
    assert notes == (
        f"round 5 is damaged: {path} is no safetensors file (SafetensorError); round 4 is used.",
    )


def test_a_journal_with_torn_pages_is_named(tmp_path: Path) -> None:
    filled(tmp_path, 40).close()
    path = tmp_path / "journal.db"
    content = bytearray(path.read_bytes())
    for start in range(4096, len(content), 4096):
        content[start : start + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"journal\.db is damaged"):
        Store(tmp_path)


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / "journal.db").unlink()
    with pytest.raises(StateError, match=r"holds tensors but no journal\.db"):
        Store(tmp_path)


@pytest.mark.parametrize(("found", "age"), [(0, "an older"), (2, "a newer")])
def test_another_format_is_named(tmp_path: Path, found: int, age: str) -> None:
    filled(tmp_path, 1).close()
    with sqlite3.connect(tmp_path / "journal.db") as rows:
        rows.execute(f"pragma user_version={found}")
    rows.close()
    with pytest.raises(StateError, match=rf"{age} fednode \(format {found}; this version reads 1"):
        Store(tmp_path)
