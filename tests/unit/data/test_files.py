"""Files that are none: FIFOs, sockets and devices; names that are not UTF-8; lists without end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fednode.data import files
from fednode.data.base import DataSettings
from fednode.data.decode import is_image
from fednode.data.files import opened, read_list, spelled
from fednode.data.images import examine
from fednode.data.load import load, look
from fednode.data.pixels import Unusable
from fednode.errors import DataError
from tests.unit.data.conftest import MakeFolder

NAMELESS = os.fsdecode(b"\xff\xfe")


def test_only_regular_files_are_opened_and_nothing_is_waited_for(tmp_path: Path) -> None:
    fifo, link, end = tmp_path / "123", tmp_path / "456", tmp_path / "789"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    end.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "7"))
    for path in (fifo, link, end, tmp_path / "7", tmp_path):
        with pytest.raises(Unusable, match="not a regular file, but a folder, a device, a FIFO"):
            opened(path)
        assert not is_image(path)
        assert (examine([path])[path].fault or "").startswith("not a regular file, but")


def test_a_file_that_becomes_a_fifo_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "1", list[os.stat_result]()
    os.mkfifo(path)
    require = files.require_regular

    def later(status: os.stat_result) -> None:
        seen.append(status)
        if len(seen) > 1:
            require(status)

    monkeypatch.setattr(files, "require_regular", later)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Unusable, match="a FIFO"):
        opened(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_no_file_is_named_and_the_rest_is_used(make_folder: MakeFolder) -> None:
    root = make_folder({"cat": 4, "dog": 4})
    os.mkfifo(root / "cat" / "x.png")
    os.mkfifo(root / "cat" / "123")
    os.mkfifo(root / "split_zhou_x.json")
    problems, data = look(DataSettings(path=str(root)))
    assert data is not None
    assert {path.name for path, _ in data.skipped} == {"x.png", "123", "split_zhou_x.json"}
    assert any(one.text.endswith("x.png'.") and "a FIFO" in one.text for one in problems)


def test_a_class_folder_whose_name_is_not_utf_8_is_named(make_folder: MakeFolder) -> None:
    root = make_folder({"cat": 4, "dog": 4})
    settings = DataSettings(path=str(root))
    (root / NAMELESS).mkdir()
    with pytest.raises(DataError, match=r"xff.xfe' has a name that is not UTF-8: rename it") as got:
        load(settings)
    str(got.value).encode()


def test_files_whose_names_are_not_utf_8_are_skipped_and_named(make_folder: MakeFolder) -> None:
    root = make_folder({"cat": 4, "dog": 4})
    for folder in ("cat", "."):
        (root / folder / (NAMELESS + ".png")).write_bytes((root / "cat" / "000.png").read_bytes())
    problems, data = look(DataSettings(path=str(root)))
    assert data is not None
    found = [one.text for one in problems if "not UTF-8" in one.text]
    assert len(found) == 1
    "\n".join(map(str, problems)).encode()
    assert len(data.skipped) == 2


def test_a_path_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not UTF-8: rename it") as got:
        load(DataSettings(path=str(tmp_path / NAMELESS)))
    str(got.value).encode()
    assert str(spelled(Path(NAMELESS))) == r"\xff\xfe"


def test_a_list_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.txt"
    path.write_text("abc")
    assert read_list(path) == "abc"
    monkeypatch.setattr(files, "LIST_MAX", 2)
    with pytest.raises(ValueError, match="more than 0 MiB"):
        read_list(path)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"train": [["a\\ud800.jpg", 0, "cat"]]}'])
def test_a_split_file_that_holds_no_text_or_no_end_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "split_zhou_x.json").write_text(content)
    with pytest.raises(DataError, match=r"split_zhou_x\.json") as got:
        load(DataSettings(path=str(tmp_path)))
    str(got.value).encode()
