"""Listing a folder of class folders, on tidy and on untidy disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.data.folder import scan
from fednode.errors import DataError
from tests.unit.data.conftest import MakeFolder


def test_classes_and_files_are_sorted_by_name(make_folder: MakeFolder) -> None:
    found = scan(make_folder({"cat": 2, "Zebra": 1, "cafe\u0301": 1}))
    assert [one.name for one in found.classes] == ["Zebra", "caf\u00e9", "cat"], "composed"
    assert [path.name for path in found.classes[2].images] == ["000.png", "001.png"]


def test_hidden_files_and_litter_are_ignored(make_folder: MakeFolder) -> None:
    root = make_folder({"ant": 1})
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "ant" / ".hidden.jpg").touch()
    (root / "ant" / "Thumbs.db").touch()
    found = scan(root)
    assert [one.name for one in found.classes] == ["ant"]
    assert not found.classes[0].others
    assert not found.strays


def test_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fednode.data.folder.os.scandir", refuse)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        scan(tmp_path)


def test_link_loops_do_not_trap_the_walk(make_folder: MakeFolder) -> None:
    root = make_folder({"ant": 1})
    (root / "ant" / "up").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    found = scan(root)
    assert [one.name for one in found.classes] == ["ant"]
    assert [path.name for path, _ in found.classes[0].others] == ["up"]
    assert [path.name for path, _ in found.strays] == ["self"]
