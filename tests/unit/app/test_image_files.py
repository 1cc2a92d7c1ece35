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


def test_a_folder_gives_its_images_in_order_and_nothing_else(folder: Path) -> None:
    wanted = [folder / name for name in ("a.JPG", "b.png", "below/c.png")]
    assert list(image_files([folder])) == wanted


def test_files_come_in_the_order_given_whatever_their_names(folder: Path) -> None:
    given = [folder / "notes.txt", folder / "b.png"]
    assert list(image_files(given)) == given


def test_a_dash_reads_paths_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(f"\ufeff{folder / 'b.png'}\n\n{folder / 'below'}\n")
    )
    found = list(image_files([Path("-"), folder / "a.JPG"]))
    assert found == [folder / "b.png", folder / "below/c.png", folder / "a.JPG"]


def test_a_path_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no image file .*/none\.png: give the path"):
        list(image_files([tmp_path / "none.png"]))
    assert list(image_files([tmp_path / "none.png"], there=False)) == [tmp_path / "none.png"]
