"""The store: what is adopted comes back whole, or the round before it, or a sentence.

Method: a disk that stops at every single call in turn; files torn, edited and removed by hand.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage import history
from fednode.storage.disk import Disk
from fednode.storage.store import CHECKPOINTS_KEPT, Store
from tests.unit.storage.failing import Crash, FailingDisk, Way
from tests.unit.storage.stored import FACTS, files, filled, read_snapshot, snapshot, traffic


def test_what_is_committed_comes_back_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "down")
    assert (store.latest(), store.history(0, 10)) == (None, [])
    store.close()
    filled(store.folder, 5).close()
    store = Store(store.folder)
    store.bind(FACTS)
    assert store.latest() == snapshot(5)
    assert store.history(5, 1)[0].traffic == traffic(5)
    assert store.warnings == []
    store.close()


def test_history_tells_all_rounds_and_old_files_are_collected(tmp_path: Path) -> None:
    store = filled(tmp_path, 10)
    rows = store.history(7, 2)
    assert [row.round for row in rows] == [7, 8]
    assert rows[0].metrics == {"loss": 1 / 7, "own": 0.5}
    assert rows[0].traffic == {"messages_out": 14}
    assert rows[0].digest == snapshot(7).policy.tensors.digest
    assert len(store.history(0, 1000)) == 10
    assert len(files(tmp_path)) == CHECKPOINTS_KEPT
    store.close()


def test_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.jsonl"
    filled(tmp_path, 4).close()
    monkeypatch.setattr(history, "BYTES_MAX", path.stat().st_size + 100)
    store = Store(tmp_path)
    sizes = list[int]()
    for number in range(5, 21):
        store.commit(snapshot(number), traffic(number))
        sizes.append(path.stat().st_size)
        shown = [row.round for row in store.history(0, 1000)]
        assert shown == [*range(shown[0], number + 1)]
        assert len(shown) >= 2
    assert max(sizes) <= history.BYTES_MAX
    store.close()
    again = Store(tmp_path)
    assert [row.round for row in again.history(0, 1000)] == shown
    again.close()


@pytest.mark.parametrize("way", ["killed", "torn", "power cut"])
def test_a_crash_at_any_call_leaves_the_round_before_or_the_new_one(
    tmp_path: Path, way: Way
) -> None:
    filled(tmp_path / "before", 4).close()
    whole = FailingDisk()
    trial = Store(shutil.copytree(tmp_path / "before", tmp_path / "whole"), whole)
    begun = len(whole.calls)
    trial.commit(snapshot(5), traffic(5))
    trial.close()
    calls = whole.calls
    assert {"write", "sync", "rename", "remove"} <= set(calls[begun:])
    # A renamed file is seen at once; after a power cut it is there if its folder was synced.
    renamed = calls.index("rename", begun)
    committed = calls.index("sync", renamed) if way == "power cut" else renamed

    for step in range(begun, len(calls)):
        folder = shutil.copytree(tmp_path / "before", tmp_path / f"step-{step}")
        store = Store(folder, FailingDisk(step, way))
        with pytest.raises(Crash):
            store.commit(snapshot(5), traffic(5))
        # A copy of the files is what the next process would find.
        found = Store(shutil.copytree(folder, tmp_path / f"found-{step}"))
        store.close()
        durable = step > committed
        assert found.latest() == snapshot(5 if durable else 4), (step, calls[step])
        assert found.history(0, 9)[-1].traffic == traffic(5 if durable else 4)
        assert found.warnings == []
        assert len(files(found.folder)) <= CHECKPOINTS_KEPT, "leftovers are swept at open"
        found.commit(snapshot(6), traffic(6))
        assert found.latest() == snapshot(6)
        found.close()


def test_a_crash_while_a_directory_is_made_leaves_one_that_opens(tmp_path: Path) -> None:
    whole = FailingDisk()
    filled(tmp_path / "whole", 1, whole).close()
    for step in range(len(whole.calls)):
        folder = tmp_path / f"step-{step}"
        disk = FailingDisk(step, "power cut")
        with pytest.raises(Crash):
            filled(folder, 1, disk)
        (folder / "lock").unlink(missing_ok=True)  # still held in this process
        store = Store(folder)
        store.bind(FACTS)
        durable = step > whole.calls.index("sync", whole.calls.index("rename"))
        assert store.latest() == (snapshot(1) if durable else None)
        store.close()


def test_a_sync_is_the_systems_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FailingDisk leaves the system's sync out, so it is looked at here."""
    calls: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        calls.append(("sync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def renamed(old: Path, new: Path) -> None:
        calls.append(("rename", old.stat().st_ino))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    Disk().replace(tmp_path / "file", b"content")
    file, folder = (tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino
    assert calls == [("sync", file), ("rename", file), ("sync", folder)]


def calls_of_round_5(tmp_path: Path) -> list[tuple[int, str]]:
    """Return the number and the name of each call of the disk that the commit of a round takes."""
    disk = FailingDisk()
    store = filled(tmp_path / "whole", 4, disk)
    begun = len(disk.calls)
    store.commit(snapshot(5))
    store.close()
    return list(enumerate(disk.calls))[begun:]


def test_a_full_disk_at_any_call_is_a_sentence_and_the_next_commit_works(tmp_path: Path) -> None:
    for step, call in calls_of_round_5(tmp_path):
        store = filled(tmp_path / f"step-{step}", 4, disk := FailingDisk(step, "full"))
        if call == "remove":
            store.commit(snapshot(5))  # only what is no longer needed stays
        else:
            with pytest.raises(StateError, match="cannot take round 5: the disk is full"):
                store.commit(snapshot(5))
            assert store.latest() == snapshot(4)
        assert disk.failed
        store.commit(snapshot(5))
        assert store.latest() == snapshot(5)
        assert not list(store.folder.glob("checkpoints/*.new"))
        assert len(files(store.folder)) == CHECKPOINTS_KEPT
        store.close()


def test_a_disk_that_turns_read_only_at_any_call_is_a_sentence_and_loses_nothing(
    tmp_path: Path,
) -> None:
    calls = calls_of_round_5(tmp_path)
    for step, call in calls:
        folder = tmp_path / f"step-{step}"
        store = filled(folder, 4, FailingDisk(step, "read-only"))
        if call == "remove":
            store.commit(snapshot(5))
        else:
            with pytest.raises(StateError, match="cannot take round 5: it is read-only"):
                store.commit(snapshot(5))
        store.close()
        again = Store(folder)
        renamed = any(one == "rename" for at, one in calls if at < step)
        assert again.latest() == snapshot(5 if renamed else 4)
        assert [row.round for row in again.history(1, 4)] == [1, 2, 3, 4]
        assert again.warnings == []
        again.commit(snapshot(5))
        again.close()


def test_another_configuration_is_named_with_both_values(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    store = Store(tmp_path)
    other = {**FACTS, "backbone": "f" * 64, "a": "1", "b": "1", "c": "1", "d": "1"}
    assert store.bind(other) == (
        "backbone was not set and is ffffffffffff; a was not set and is 1; b was not set and is 1; "
        "c was not set and is 1"
    )
    assert store.bind({**other, "policy.name": "local"}) == "policy.name was zerodfl and is local"
    assert store.bind({**FACTS, "policy.name": "local"}, free=("policy.name",)) == ""
    assert store.bind(FACTS) == "", "nothing was written"
    store.close()


def test_a_directory_of_another_node_or_mesh_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.bind({**FACTS, "name": "a"})
    with pytest.raises(StateError, match=r"made with mesh m, and this node has mesh other"):
        store.bind({"mesh": "other", "name": "b", "policy.name": "gda"})
    with pytest.raises(StateError, match=r"made with name a, and this node has name b: give this"):
        store.bind({**FACTS, "name": "b"})
    store.close()


def test_a_second_process_is_refused_by_the_pid_of_the_first(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fednode.storage.store import Store\n"
        "store = Store(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StateError, match=f"in use by process {other.pid}:"):
            Store(tmp_path)
        other.kill()
        other.wait()
        # The lock ends with its process, however that ended.
        Store(tmp_path).close()


def test_files_are_for_the_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = filled(folder, 1)
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }
    assert modes.pop("state") == modes.pop("state/checkpoints") == 0o700
    assert set(modes.values()) == {0o600}
    assert {"state/lock", "state/history.jsonl", "state/checkpoints/000001.safetensors"} <= set(
        modes
    )
    store.close()


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("I am a file")
    with pytest.raises(
        StateError, match=r"cannot be used: a file is where a folder is to be\. Make"
    ):
        Store(tmp_path / "state")


def test_a_running_node_can_be_read_by_others(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    assert read_snapshot(tmp_path) == snapshot(3)
    store.commit(snapshot(4))
    for _ in range(2):
        assert read_snapshot(tmp_path) == snapshot(4)
        store.close()
    Store(tmp_path).close()


def test_reading_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="There is no state directory at"):
        read_snapshot(tmp_path / "nothing")
    Store(tmp_path).close()
    with pytest.raises(StateError, match="has not adopted a round yet: let it finish"):
        read_snapshot(tmp_path)


def test_a_store_that_cannot_be_swept_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / "checkpoints" / "000002.safetensors.new").touch()

    def fail(disk: Disk, path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr(Disk, "remove", fail)
        store = Store(tmp_path)
        assert store.latest() == snapshot(1)
        store.close()
    Store(tmp_path).close()
    assert [path.name for path in files(tmp_path)] == ["000001.safetensors"]
