"""Images that come and go while a node runs."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fednode.data import images
from fednode.data.base import DataSettings, NodeData
from fednode.data.decode import decode
from fednode.data.load import load
from fednode.data.rescan import Rescan
from tests.unit.data.conftest import MakeFolder, draw, fresh


@pytest.fixture
def root(make_folder: MakeFolder) -> Path:
    return make_folder({"cat": 4, "dog": 4})


def start(root: Path) -> tuple[Rescan, NodeData]:
    settings = DataSettings(path=str(root), shots=0, test=0.25)
    data = load(settings)
    return Rescan(settings, None, data), data


def later(folder: Path) -> None:
    """Let a folder's time differ from what it was, however coarse the clock of the disk."""
    stat = folder.stat()
    os.utime(folder, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))


def add(root: Path, name: str) -> None:
    Image.new("RGB", (40, 40), (9, 9, 9)).save(root / name)
    later((root / name).parent)


def test_the_built_in_images_never_change() -> None:
    settings = DataSettings(classes=("accordion", "barrel"))
    assert Rescan(settings, None, load(settings)).look() is None


def test_a_file_that_may_be_read_later_is_used_then(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *given: Any) -> Any:
        if path.name == "000.png":
            raise PermissionError(errno.EACCES, "Permission denied")
        return decode(path, *given)

    with monkeypatch.context() as patched:
        patched.setattr(images, "decode", refuse)
        rescan, before = start(root)
        assert [why for _, why in before.skipped] == ["cannot be read: Permission denied"] * 2
        assert rescan.look(60.0) is None
    assert rescan.look(60.0) is None, "it is not tried at each round"
    monkeypatch.setattr("fednode.data.rescan.RETRY_S", 0.0)
    assert not fresh(rescan).skipped
    assert rescan.look() is None


def test_an_image_that_went_is_left_out(root: Path) -> None:
    rescan, before = start(root)
    add(root, "cat/new.png")
    assert len(fresh(rescan).train.images) > len(before.train.images)
    assert rescan.look() is None
    (root / "cat" / "new.png").unlink()
    later(root / "cat")
    assert fresh(rescan).train == before.train


SPLIT = '{"train": [["cat/000.png", 0, "a"], ["dog/000.png", 1, "b"]%s]}'
TABLE = "file,label\ncat/000.png,a\ncat/001.png,a\ndog/000.png,b\ndog/001.png,b\n"


@pytest.mark.parametrize(
    ("before", "after", "name", "changes"),
    [
        ("", "", "owl/0.png", {"test": 0.0}),
        ("", "", "dog/p3/more/0.png", {"groups": "folder"}),
        (TABLE, TABLE + "dog/002.png,b\n", "../t.csv", {"table": "../t.csv"}),
        (SPLIT % "", SPLIT % ', ["dog/001.png", 1, "b"]', "split_zhou_x.json", {"test": 0.0}),
    ],
)
def test_what_comes_into_a_folder_is_noticed(
    root: Path, before: str, after: str, name: str, changes: dict[str, Any]
) -> None:
    draw(root / "cat" / "p1" / "1.png")
    path = root / name
    if not name.startswith("owl"):  # an empty class is a fault
        path.parent.mkdir(parents=True, exist_ok=True)
    if before:
        path.write_text(before)
    settings = DataSettings(path=str(root), **({"shots": 0, "test": 0.25} | changes))
    data = load(settings)
    rescan = Rescan(settings, None, data)
    assert rescan.look() is None
    if after:
        path.write_text(after)
    else:
        draw(path)
        later(path.parent)
    assert len(fresh(rescan).files) == len(data.files) + 1


def test_a_file_that_was_being_copied_is_taken_when_it_is_whole(root: Path) -> None:
    rescan, before = start(root)
    add(root, "dog/big.png")
    whole = (root / "dog" / "big.png").read_bytes()
    (root / "dog" / "big.png").write_bytes(whole[:20])
    now = fresh(rescan)
    assert len(now.skipped) == 1
    assert rescan.look() is None
    (root / "dog" / "big.png").write_bytes(whole)  # the folder's own time stays
    now = fresh(rescan)
    assert now.skipped == ()
    assert len(now.train.images) > len(before.train.images)


def test_a_folder_that_cannot_be_used_any_more_is_named_until_it_can(root: Path) -> None:
    rescan, _ = start(root)
    for path in (root / "cat").iterdir():
        path.unlink()
    later(root / "cat")
    for _ in range(2):
        assert rescan.look() is None
        assert "cat" in rescan.fault
        assert rescan.fault.endswith("The images of the last good look are used.")
    add(root, "cat/1.png")
    add(root, "cat/2.png")
    fresh(rescan)
    assert rescan.fault == ""


def test_a_folder_that_is_gone_and_comes_back(root: Path) -> None:
    rescan, _ = start(root)
    away = root.rename(root.with_name("elsewhere"))
    assert rescan.look() is None
    assert "does not exist" in rescan.fault
    away.rename(root)
    assert rescan.look(60.0) is None, "the images are those of before"
    assert rescan.fault == ""


def test_a_load_that_lasts_holds_no_round_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rescan, before = start(root)
    free = threading.Event()

    def slow(settings: DataSettings, cache: object = None) -> NodeData:
        assert free.wait(60)
        return load(settings)

    monkeypatch.setattr("fednode.data.rescan.load", slow)
    add(root, "cat/bomb.png")
    for _ in range(3):
        assert rescan.look(0.0) is None
        assert "are being examined" in rescan.fault
    free.set()
    now = fresh(rescan)
    assert len(now.train.images) > len(before.train.images)
    assert rescan.fault == ""
    assert rescan.look() is None


def test_what_changes_during_a_load_is_loaded_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescan, _ = start(root)

    def slow(settings: DataSettings, cache: object = None) -> NodeData:
        found = load(settings)
        monkeypatch.setattr("fednode.data.rescan.load", load)
        add(root, "cat/later.png")
        return found

    monkeypatch.setattr("fednode.data.rescan.load", slow)
    add(root, "cat/first.png")
    assert "later.png" not in repr(fresh(rescan))
    assert "later.png" in repr(fresh(rescan))
    assert rescan.look() is None


def test_a_defect_of_a_load_is_raised_where_a_round_can_say_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescan, _ = start(root)

    def broken(settings: DataSettings, cache: object = None) -> NodeData:
        raise RuntimeError("a defect")

    monkeypatch.setattr("fednode.data.rescan.load", broken)
    add(root, "cat/first.png")
    with pytest.raises(RuntimeError, match="a defect"):
        rescan.look(60)
