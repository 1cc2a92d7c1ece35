"""Damaged state directories: what is damaged is named, and the last sound round is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage import checkpoint
from fednode.storage.store import Store, is_state, newest
from tests.unit.storage.stored import file_of, files, filled, read_snapshot, snapshot


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "is no checkpoint"),
        (lambda path: path.write_bytes(b""), "is no checkpoint"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"0.75", b"0.95")),
            "does not match its digest",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1"),
            "does not match its digest",
        ),
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
    assert again.warnings == [], "the damaged file was replaced"
    again.close()


def test_where_no_round_is_whole_nothing_is_used(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    for path in files(tmp_path):
        path.write_bytes(b"not tensors")
    before = [path.read_bytes() for path in files(tmp_path)]
    for look in (Store, read_snapshot):
        with pytest.raises(StateError, match=r"round 3 is damaged.*round 2.*round 1.*backup"):
            look(tmp_path)
    assert [path.read_bytes() for path in files(tmp_path)] == before


def test_a_reader_is_told_of_damaged_newer_rounds(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    path = file_of(tmp_path, 5)
    path.write_bytes(b"torn")
    found, notes = newest(tmp_path)
    assert found.snapshot == snapshot(4) == read_snapshot(tmp_path)
    assert notes == (
        f"round 5 is damaged: {path} is no checkpoint (SafetensorError); round 4 is used.",
    )


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_checkpoint_of_a_newer_version_is_named_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, 4)
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "FORMAT", 2)
        store.commit(snapshot(5))
    store.close()
    (tmp_path / "checkpoints" / "000006.safetensors.new").touch()
    before = content(tmp_path)
    path = file_of(tmp_path, 5)
    said = rf"{path} was written by a newer fednode \(format 2; this version reads 1\)"
    for look in (Store, newest):
        with pytest.raises(StateError, match=said):
            look(tmp_path)
    assert content(tmp_path) == before


def test_a_directory_of_a_version_before_checkpoints_is_named_and_not_touched(
    tmp_path: Path,
) -> None:
    (tmp_path / "journal.db").write_bytes(b"SQLite format 3\0")
    assert is_state(tmp_path)
    before = content(tmp_path)
    said = rf"{tmp_path} is a state directory of an earlier version .* begin anew"
    for look in (Store, newest):
        with pytest.raises(StateError, match=said):
            look(tmp_path)
    assert content(tmp_path) == before
