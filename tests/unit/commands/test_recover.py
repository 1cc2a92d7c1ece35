"""A damaged journal: which rounds come back, and what is said where none does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.recover import recover
from fednode.storage.store import Store, read_snapshot
from tests.unit.commands.run import Fednode
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
    with pytest.raises(
        StateError, match=rf"journal\.db is damaged\. .*recover --state {tmp_path}`"
    ):
        Store(tmp_path)
    assert recover(tmp_path)[0] == back
    assert (tmp_path / "journal.db.damaged").read_bytes() == spoil(before)
    assert read_snapshot(tmp_path) == snapshot(back)
    store = Store(tmp_path)
    store.bind(FACTS)
    assert store.latest() == snapshot(back)
    store.commit(snapshot(back + 1))
    assert store.latest() == snapshot(back + 1)
    store.close()


def test_a_round_whose_file_is_lost_is_skipped(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    path = tmp_path / "journal.db"
    path.write_bytes(header(path.read_bytes()))
    newest = max(files(tmp_path), key=lambda one: one.stat().st_mtime_ns)
    newest.unlink()
    assert recover(tmp_path) == (4, 1)


def test_nothing_is_made_of_nothing(tmp_path: Path, fednode: Fednode) -> None:
    filled(tmp_path / "s", 2).close()
    path = tmp_path / "s" / "journal.db"
    assert "is not damaged: `fednode start`" in fednode.fault("recover", "--state", path.parent)
    path.write_bytes(b"\xff" * path.stat().st_size)
    said = fednode.fault("recover", "--state", path.parent)
    assert said.startswith(f"No round in {path} is whole: restore {path.parent} from a backup")
    assert path.read_bytes() == b"\xff" * path.stat().st_size
    assert "There is no journal" in fednode.fault("recover", "--state", tmp_path / "none")


def test_a_running_node_is_left_alone(tmp_path: Path, fednode: Fednode) -> None:
    store = filled(tmp_path / "s", 2)
    assert "is in use" in fednode.fault("recover", "--state", tmp_path / "s")
    store.close()


def test_the_command_says_what_came_back_and_where_the_rest_is(
    tmp_path: Path, fednode: Fednode
) -> None:
    filled(tmp_path / "s", 5).close()
    path = tmp_path / "s" / "journal.db"
    path.write_bytes(newest_row(path.read_bytes()))
    assert fednode("recover", "--state", tmp_path / "s") == 0
    assert fednode.out.startswith(
        f"{tmp_path / 's'} holds round 4 again, and `fednode start` goes on there."
    )
    assert fednode.out.endswith("The damaged file is journal.db.damaged.\n")
