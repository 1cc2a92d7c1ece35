"""Files that are written whole: after a power loss, a full disk, and for whose eyes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.files import put
from fednode.storage.store import Store
from tests.unit.storage.failing import Crash, FailingDisk


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
from fednode.storage.disk import Disk
from fednode.storage.files import put

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
