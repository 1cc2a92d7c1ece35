"""Image files given to a command: files, folders, and paths on standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fednode.app.image_files import image_files
from fednode.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    litter = ("._b.png", ".ipynb_checkpoints/b.png", "below/@eaDir/c.png", "__MACOSX/b.png")
    for name in ("b.png", "a.JPG", "below/c.png", "notes.txt", *litter):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_folders_files_and_paths_on_standard_input_come_in_the_order_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder gives its images, in order, and nothing else; a file counts whatever its name."""
    lines = io.StringIO(f"\ufeff{folder / 'b.png'}\n\n{folder / 'below'}\n")
    monkeypatch.setattr("sys.stdin", lines)
    found = list(image_files([folder, folder / "notes.txt", Path("-"), folder / "a.JPG"]))
    names = ("a.JPG", "b.png", "below/c.png", "notes.txt", "b.png", "below/c.png", "a.JPG")
    assert found == [folder / name for name in names]


def test_a_path_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no image file .*/none\.png: give the path"):
        list(image_files([tmp_path / "none.png"]))
    assert list(image_files([tmp_path / "none.png"], there=False)) == [tmp_path / "none.png"]
