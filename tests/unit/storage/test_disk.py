"""Who may use a state directory, and what is never written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.disk import Disk, because, keep_private, lock


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
