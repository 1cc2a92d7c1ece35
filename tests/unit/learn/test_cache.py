"""The machine's feature cache: shared, checked, bounded, and never in the way."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from fednode.learn import cache as module
from fednode.learn.cache import FILE, FeatureCache, folder_of
from fednode.learn.settings import CacheSettings

SIZE = 1_000_000
ROWS = {f"key {number}".encode(): bytes([number]) * 100 for number in range(20)}


def test_what_was_put_there_is_found_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = FeatureCache(tmp_path, SIZE), FeatureCache(tmp_path, SIZE)
    one.put(ROWS)
    assert two.get([*ROWS, b"unknown"]) == ROWS
    assert two.get([]) == {}
    monkeypatch.setattr(module, "CHUNK", 3)  # many keys are asked for in parts
    one.close()
    one.close()
    assert FeatureCache(tmp_path, SIZE).get(list(ROWS)) == ROWS
    assert two.notes == []


def test_no_other_user_reads_it(tmp_path: Path) -> None:
    FeatureCache(tmp_path / "cache", SIZE).put(ROWS)
    modes = [
        path.stat().st_mode & 0o777 for path in (tmp_path / "cache", tmp_path / "cache" / FILE)
    ]
    assert modes == [0o700, 0o600]


def test_a_row_that_was_changed_is_not_used(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, SIZE)
    cache.put(ROWS)
    with sqlite3.connect(tmp_path / FILE) as rows:
        rows.execute("UPDATE features SET value = x'00' WHERE key = ?", [b"key 3"])
        rows.execute("UPDATE features SET mark = x'00' WHERE key = ?", [b"key 4"])
        rows.execute("DELETE FROM features WHERE key = ?", [b"key 1"])  # bytes of another key
        rows.execute("UPDATE features SET key = ? WHERE key = ?", [b"key 1", b"key 2"])
    rows.close()
    found = cache.get(list(ROWS))
    assert set(ROWS) - set(found) == {b"key 1", b"key 2", b"key 3", b"key 4"}
    cache.put(ROWS)
    assert cache.get(list(ROWS)) == ROWS


def test_the_oldest_rows_make_room(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, 200_000)
    for number in range(60):
        cache.put({f"{number}".encode(): bytes(10_000)})
    kept = [number for number in range(60) if cache.get([f"{number}".encode()])]
    assert 5 < len(kept) <= 20
    assert kept == list(range(kept[0], 60))
    assert (tmp_path / FILE).stat().st_size < 3 * 200_000


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" * 300])
def test_a_damaged_file_is_named_and_built_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    cache = FeatureCache(tmp_path, SIZE)
    assert "was damaged" in cache.notes[0]
    assert "is built anew" in cache.notes[0]
    assert str(tmp_path) in cache.notes[0]
    cache.put(ROWS)
    assert FeatureCache(tmp_path, SIZE).get(list(ROWS)) == ROWS


def test_damage_found_in_the_middle_costs_what_was_there(tmp_path: Path) -> None:
    FeatureCache(tmp_path, SIZE).put({key: value * 200 for key, value in ROWS.items()})
    with sqlite3.connect(tmp_path / FILE) as rows:
        rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    rows.close()
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    content[4096:-4096] = bytes(os.urandom(1)) * (len(content) - 8192)
    path.write_bytes(content)
    cache = FeatureCache(tmp_path, SIZE)
    assert cache.get(list(ROWS)) == {}
    cache.put(ROWS)
    assert cache.get(list(ROWS)) == ROWS
    assert "was damaged" in cache.notes[0]


def test_what_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = FeatureCache(tmp_path / "file", SIZE)
    cache.put(ROWS)
    assert cache.get(list(ROWS)) == {}
    assert len(cache.notes) == 1
    assert "images are encoded anew at each start" in cache.notes[0]


def _fill(folder: Path, first: int) -> None:
    cache = FeatureCache(folder, 50_000_000)
    for number in range(first, first + 50):
        cache.put({f"{number}/{row}".encode(): bytes([number % 256]) * 500 for row in range(20)})


def test_processes_that_fill_it_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(tmp_path, first)) for first in (0, 25, 50)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    cache = FeatureCache(tmp_path, 50_000_000)
    keys = [f"{number}/{row}".encode() for number in range(100) for row in range(20)]
    assert len(cache.get(keys)) == 2000


def test_a_process_killed_while_it_writes_leaves_a_whole_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=_fill, args=(tmp_path, 0))
    worker.start()
    reader = FeatureCache(tmp_path, 50_000_000)
    while not reader.get([b"5/0"]):
        assert worker.is_alive() or worker.exitcode == 0
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(60)
    fresh = FeatureCache(tmp_path, 50_000_000)
    assert len(fresh.get([f"3/{row}".encode() for row in range(20)])) == 20
    fresh.put(ROWS)
    assert fresh.get(list(ROWS)) == ROWS
    assert fresh.notes == []


def test_the_place_follows_the_user_s_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_of(CacheSettings()) == tmp_path / ".cache" / "fednode"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert folder_of(CacheSettings()) == tmp_path / "x" / "fednode"
    assert module.cache_of(CacheSettings(str(tmp_path), size_mb=0)) is None
    assert list(tmp_path.iterdir()) == []
