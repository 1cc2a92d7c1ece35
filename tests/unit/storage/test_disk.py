"""Users of a state directory, files that are never written, and files that are written whole."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.disk import Disk, because, keep_private, lock, put
from fednode.storage.store import Store
from tests.unit.storage.failing import Crash, FailingDisk


def _modes(folder: Path) -> set[str]:
    """Return the entries below a folder, with the folder, that other users have any right on."""
    return {
        str(one.relative_to(folder.parent))
        for one in (folder, *folder.rglob("*"))
        if one.lstat().st_mode & 0o077 and not one.is_symlink()
    }


@pytest.fixture
def open_to_all() -> Iterator[None]:
    mask = os.umask(0)
    yield
    os.umask(mask)


@pytest.mark.usefixtures("open_to_all")
def test_parents_that_are_made_are_for_the_owner_alone(tmp_path: Path) -> None:
    Disk().make_folder(tmp_path / "fednode" / "mesh" / "node")
    assert _modes(tmp_path / "fednode") == set()


@pytest.mark.usefixtures("open_to_all")
def test_the_rights_of_others_on_a_state_directory_end_with_its_lock(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    (folder / "identity").mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    (folder / "settings.yaml").touch(0o644)
    (folder / "elsewhere").symlink_to(tmp_path / "other")
    (tmp_path / "other").touch(0o644)
    os.close(lock(folder))
    assert _modes(folder) == set()
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o644


def test_a_directory_in_which_all_may_write_is_taken_only_while_it_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    keep_private(folder)
    assert _modes(folder) == set()
    (folder / "settings.yaml").touch()
    folder.chmod(0o777)
    with pytest.raises(StateError, match=r"Every user may write in .* \(mode 0777\)"):
        lock(folder)


def test_a_file_that_goes_while_a_directory_is_made_private_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "book").touch(0o644)
    listed = [tmp_path / "book.1a2b3c4d", tmp_path / "book"]
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(listed))
    keep_private(tmp_path)
    assert stat.S_IMODE((tmp_path / "book").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("me", "owner", "mode", "taken"),
    [
        (1000, 1000, 0o700, True),
        (1000, 1001, 0o700, False),
        (1000, 1001, 0o770, False),
        (1000, 0, 0o2770, True),
        (1000, 0, 0o777, False),
        (0, 1001, 0o755, True),
    ],
)
def test_whose_directory_a_node_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, me: int, owner: int, mode: int, taken: bool
) -> None:
    given = os.stat_result((stat.S_IFDIR | mode, 0, 0, 0, owner, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: me)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: given)
    if taken:
        keep_private(tmp_path)
    else:
        with pytest.raises(StateError, match=f"belongs to user {owner}, and this is user {me}"):
            keep_private(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lock", lock),
        ("history.jsonl", lambda folder: Disk().append(folder / "history.jsonl", 0, b"mine")),
    ],
)
def test_no_file_behind_a_link_is_changed(
    tmp_path: Path, name: str, change: Callable[[Path], object]
) -> None:
    folder, other = tmp_path / "state", tmp_path / "other"
    folder.mkdir(mode=0o700)
    other.write_text("precious")
    (folder / name).symlink_to(other)
    with pytest.raises(OSError, match="symbolic links") as found:
        change(folder)
    assert because(found.value).startswith("it is a link")
    assert other.read_text() == "precious"


# Files that are written whole


def test_what_was_written_survives_a_power_loss(tmp_path: Path) -> None:
    path, disk = tmp_path / "privacy.json", FailingDisk()
    put(path, "one", "folder", disk=disk)
    assert disk.calls == ["create", "write", "sync", "rename", "sync"]
    for fail_at in range(5):
        cut = FailingDisk(fail_at, "power cut")
        with pytest.raises(Crash):
            put(path, "two", "folder", disk=cut)
        assert path.read_text() in {"one", "two"}
        path.write_text("one")


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text("old")
    for fail_at in range(4):
        with pytest.raises(StateError, match="cannot be written: the disk is full; free"):
            put(path, "new", "folder", disk=FailingDisk(fail_at, "full"))
        assert [one.name for one in tmp_path.iterdir()] == ["revoked.txt"]
        assert path.read_text() == "old"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "device")
    with pytest.raises(StateError, match="device is no file; choose another folder"):
        put(tmp_path / "device", "text", "folder")
    assert (tmp_path / "device").is_fifo()


@pytest.mark.parametrize("for_all", [True, False])
def test_a_file_is_for_its_owner_alone_unless_it_is_for_all(tmp_path: Path, for_all: bool) -> None:
    path, mask = tmp_path / "token", os.umask(0o022)
    try:
        put(path, "text", "folder", for_all=for_all)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == (0o644 if for_all else 0o600)


WRITER = """
import os, sys
from pathlib import Path
from fednode.storage.disk import Disk, put

class Killed(Disk):
    def rename(self, old, new):
        os.kill(os.getpid(), 9)

put(Path(sys.argv[1]), "text", "folder", disk=Killed())
"""


@pytest.mark.parametrize(
    "name", ["privacy.json", "identity/certificate.pem", "enrolment/ledger.json"]
)
def test_what_a_killed_process_left_aside_is_gone_after_the_next_start(
    tmp_path: Path, name: str
) -> None:
    Store(tmp_path).close()
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("old")
    killed = subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(path.parent.glob(f"{path.name}.*"))) == 1
    Store(tmp_path).close()
    assert not list(path.parent.glob(f"{path.name}.*"))
    assert path.read_text() == "old"
