"""A run under other settings is kept as a state directory of its own, whatever happens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.disk import Disk
from fednode.storage.store import CLASSES, SETTINGS, Store, earlier_runs
from tests.unit.storage.failing import Crash, FailingDisk, Way
from tests.unit.storage.stored import FACTS, filled, read_snapshot, snapshot, traffic

OTHER = {"mesh": "m", "policy.name": "gda"}


def made(folder: Path, disk: Disk | None = None) -> Store:
    """Return a state directory with two rounds, its settings and its classes."""
    store = filled(folder, 2, disk)
    (folder / SETTINGS).write_text("name: a\n", encoding="utf-8")
    (folder / CLASSES).write_text("cat\n", encoding="utf-8")
    return store


def test_a_run_under_other_settings_is_kept_as_a_directory_of_its_own(tmp_path: Path) -> None:
    store = made(tmp_path)
    account = tmp_path / "privacy.json"
    account.write_text('{"releases": [{"clip": 1.0, "noise": 2.0, "count": 4}]}', encoding="utf-8")
    spent, before = account.read_bytes(), store.history(0, 9)
    store.begin_anew(OTHER)
    assert store.bind(OTHER) == ""
    assert (store.latest(), store.history(0, 9)) == (None, [])
    (run,) = earlier_runs(tmp_path)
    assert run == tmp_path / "runs" / "1"
    assert read_snapshot(run) == snapshot(2)
    assert account.read_bytes() == spent, "releases that were made stay counted"
    assert not (run / "privacy.json").exists()
    assert (run / SETTINGS).read_text(encoding="utf-8") == "name: a\n"
    assert (run / CLASSES).read_text(encoding="utf-8") == "cat\n"
    old = Store(run)
    assert old.history(0, 9) == before
    assert old.bind(FACTS) == ""
    old.close()

    store.commit(snapshot(1), traffic(1))
    store.begin_anew(FACTS)
    assert [read_snapshot(one) for one in earlier_runs(tmp_path)] == [snapshot(2), snapshot(1)]
    store.begin_anew(OTHER)
    assert len(earlier_runs(tmp_path)) == 2, "a run without rounds is not kept"
    store.close()


def calls_of_begin_anew(tmp_path: Path) -> tuple[int, list[str]]:
    """Make a state directory; return how many calls its opening takes, and with a new run all."""
    made(tmp_path / "before").close()
    whole = FailingDisk()
    trial = Store(shutil.copytree(tmp_path / "before", tmp_path / "whole"), whole)
    begun = len(whole.calls)
    trial.begin_anew(OTHER)
    trial.close()
    return begun, whole.calls


@pytest.mark.parametrize("way", ["killed", "power cut"])
def test_a_crash_at_any_call_leaves_one_configuration_with_its_rounds(
    tmp_path: Path, way: Way
) -> None:
    begun, calls = calls_of_begin_anew(tmp_path)
    outcomes = set()
    for step in range(begun, len(calls)):
        folder = shutil.copytree(tmp_path / "before", tmp_path / f"step-{step}")
        store = Store(folder, FailingDisk(step, way))
        with pytest.raises(Crash):
            store.begin_anew(OTHER)
        found = Store(shutil.copytree(folder, tmp_path / f"found-{step}"))
        store.close()
        anew = found.bind(OTHER) == ""
        outcomes.add(anew)
        assert found.latest() == (None if anew else snapshot(2)), (step, calls[step])
        assert anew or found.bind(FACTS) == ""
        found.begin_anew(OTHER)
        assert (found.latest(), found.bind(OTHER)) == (None, "")
        found.close()
        assert [read_snapshot(one) for one in earlier_runs(found.folder)] == [snapshot(2)]
    assert False in outcomes


def test_a_full_disk_at_any_call_leaves_the_old_run_and_the_next_attempt_works(
    tmp_path: Path,
) -> None:
    begun, calls = calls_of_begin_anew(tmp_path)
    committed = len(calls) - 1 - calls[::-1].index("rename")
    for step in range(begun, committed + 1):
        folder = shutil.copytree(tmp_path / "before", tmp_path / f"step-{step}")
        store = Store(folder, FailingDisk(step, "full"))
        with pytest.raises(StateError, match="the disk is full"):
            store.begin_anew(OTHER)
        assert (store.latest(), store.bind(FACTS)) == (snapshot(2), "")
        store.close()
        again = Store(folder)
        again.begin_anew(OTHER)
        assert (again.latest(), again.bind(OTHER)) == (None, "")
        again.close()
        assert [read_snapshot(one) for one in earlier_runs(folder)] == [snapshot(2)]


def test_a_run_that_was_moved_away_does_not_come_back_after_a_power_cut(tmp_path: Path) -> None:
    _, calls = calls_of_begin_anew(tmp_path)
    folder = shutil.copytree(tmp_path / "before", tmp_path / "cut")
    store = Store(folder, FailingDisk(len(calls), "power cut"))
    store.begin_anew(OTHER)
    with pytest.raises(Crash):
        store.commit(snapshot(1))
    store.close()
    found = Store(folder)
    assert (found.latest(), found.bind(OTHER)) == (None, "")
    found.close()
    assert [read_snapshot(one) for one in earlier_runs(folder)] == [snapshot(2)]
