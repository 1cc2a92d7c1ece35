"""The run that a node begins again is kept as a state directory of its own, whatever happens."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.types import Snapshot
from fednode.errors import StateError
from fednode.storage import journal
from fednode.storage.disk import Disk
from fednode.storage.runs import CLASSES, SETTINGS, kept
from fednode.storage.store import Store, newest
from tests.unit.storage.failing import Crash, FailingDisk, Way
from tests.unit.storage.stored import filled, snapshot, traffic

FIRST = snapshot(3).policy
BEGINNING = Snapshot(replace(FIRST, round=0), {}, redone=1)


def made(folder: Path, disk: Disk | None = None) -> Store:
    """Return a state directory with two rounds, its settings and its classes."""
    store = filled(folder, 2, disk)
    (folder / SETTINGS).write_text("name: a\n", encoding="utf-8")
    (folder / CLASSES).write_text("cat\n", encoding="utf-8")
    return store


def test_a_run_that_begins_again_is_kept_as_a_directory_of_its_own(tmp_path: Path) -> None:
    store = made(tmp_path)
    account = tmp_path / "privacy.json"
    account.write_text('{"releases": [{"clip": 1.0, "noise": 2.0, "count": 4}]}', encoding="utf-8")
    spent, before = account.read_bytes(), store.history(0, 9)
    store.commit(BEGINNING, traffic(2))
    assert store.latest() == BEGINNING
    assert [row.round for row in store.history(0, 9)] == [0]
    (run,) = kept(tmp_path)
    assert run == tmp_path / "runs" / "1"
    assert newest(run) == (snapshot(2), ())
    assert account.read_bytes() == spent, "releases that were made stay counted"
    assert not (run / "privacy.json").exists()
    assert (run / SETTINGS).read_text(encoding="utf-8") == "name: a\n"
    assert (run / CLASSES).read_text(encoding="utf-8") == "cat\n"
    old = Store(run)
    assert old.history(0, 9) == before
    old.close()

    store.commit(replace(snapshot(1), redone=1), traffic(5))
    store.commit(replace(BEGINNING, redone=2), traffic(5))
    assert [one.name for one in kept(tmp_path)] == ["1", "2"]
    assert newest(kept(tmp_path)[1])[0].redone == 1
    store.close()


def test_a_new_directory_and_one_of_imported_prompts_keep_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.commit(replace(BEGINNING, redone=0), {})
    store.commit(BEGINNING, {})
    assert kept(tmp_path) == []
    store.close()


def test_the_beginning_stays_however_many_rounds_follow(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.beginning() is None
    store.commit(BEGINNING, {})
    for number in range(1, 9):
        store.commit(snapshot(number), traffic(number))
    assert store.beginning() == BEGINNING.policy
    assert store.latest() == snapshot(8)
    assert len(list((tmp_path / "tensors").iterdir())) == journal.SNAPSHOTS_KEPT + 1
    assert store.warnings == []
    row = next(one for one in store._journal.snapshots() if not one.round)
    (tmp_path / "tensors" / f"{row.digest}.safetensors").write_bytes(b"")
    assert store.beginning() is None
    (warning,) = store.warnings
    assert "round 0" in warning
    store.close()


@pytest.mark.parametrize("way", ["killed", "power cut"])
def test_a_crash_at_any_call_loses_neither_the_old_run_nor_the_new_one(
    tmp_path: Path, way: Way
) -> None:
    made(tmp_path / "before").close()
    whole = FailingDisk()
    trial = Store(shutil.copytree(tmp_path / "before", tmp_path / "whole"), whole)
    begun = len(whole.calls)
    trial.commit(BEGINNING, traffic(2))
    trial.close()
    outcomes = set()
    for step in range(begun, len(whole.calls)):
        folder = shutil.copytree(tmp_path / "before", tmp_path / f"step-{step}")
        store = Store(folder, FailingDisk(step, way))
        with pytest.raises(Crash):
            store.commit(BEGINNING, traffic(2))
        # A copy of the files is what the next process would find.
        found = Store(shutil.copytree(folder, tmp_path / f"found-{step}"))
        store.close()
        held = found.latest()
        assert held in (snapshot(2), BEGINNING), (step, whole.calls[step])
        outcomes.add(held == BEGINNING)
        if held == BEGINNING:
            assert newest(found.folder / "runs" / "1")[0] == snapshot(2)
        found.commit(BEGINNING, traffic(2))
        assert found.latest() == BEGINNING
        found.close()
        assert [newest(one)[0] for one in kept(found.folder)] == [snapshot(2)]
    assert outcomes == {True, False}


def test_a_full_disk_at_any_call_leaves_the_old_run_and_the_next_attempt_works(
    tmp_path: Path,
) -> None:
    made(tmp_path / "before").close()
    whole = FailingDisk()
    trial = Store(shutil.copytree(tmp_path / "before", tmp_path / "whole"), whole)
    begun = len(whole.calls)
    trial.commit(BEGINNING, traffic(2))
    trial.close()
    for step in range(begun, whole.calls.index("insert"), 3):
        folder = shutil.copytree(tmp_path / "before", tmp_path / f"step-{step}")
        store = Store(folder, FailingDisk(step, "full"))
        with pytest.raises(StateError, match="the disk is full"):
            store.commit(BEGINNING, traffic(2))
        assert store.latest() == snapshot(2)
        store.close()
        again = Store(folder)
        again.commit(BEGINNING, traffic(2))
        assert again.latest() == BEGINNING
        again.close()
        assert [newest(one)[0] for one in kept(folder)] == [snapshot(2)]
