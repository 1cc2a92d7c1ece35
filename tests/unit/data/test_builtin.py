"""The images that ship are the ones of the manifest, and the notice names their classes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fednode.data import builtin
from fednode.errors import DataError

MEGABYTES_MAX = 6.0


def test_every_image_is_the_one_of_the_manifest() -> None:
    known = builtin.sums()
    present = sorted(path for path in builtin.root().rglob("*") if path.is_file())
    assert present == sorted(known)
    verdicts = builtin.examine(present)
    assert all(verdict.fault is None and verdict.digest for verdict in verdicts.values())


def test_every_class_has_the_same_number_of_images_and_all_are_small() -> None:
    assert [len(list(path.iterdir())) for path in builtin.root().iterdir()] == [24] * 50
    size = sum(path.stat().st_size for path in builtin.root().rglob("*.jpg"))
    assert size / 1e6 <= MEGABYTES_MAX


def test_notice_names_source_licence_and_every_class() -> None:
    notice = (builtin.ASSETS / "README.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in notice
    assert "Caltech 101 by Fei-Fei Li, Marco Andreeto" in notice
    words = set(notice.replace(",", " ").replace(".", " ").split())
    assert {path.name for path in builtin.root().iterdir()} <= words


def test_missing_images_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="The built-in images are missing from"):
        builtin.root(tmp_path)


def test_changed_missing_and_foreign_images_are_named(tmp_path: Path) -> None:
    image = tmp_path / builtin.FOLDER / "ant" / "one.jpg"
    image.parent.mkdir(parents=True)
    line = f"{hashlib.sha256(b'right').hexdigest()}  {builtin.FOLDER}/ant/one.jpg\n"
    (tmp_path / builtin.MANIFEST).write_text(line, encoding="utf-8")
    image_of_nobody = image.with_name("two.jpg")
    image_of_nobody.write_bytes(b"right")
    for content in (None, b"wrong", b"right"):
        if content is not None:
            image.write_bytes(content)
        found = builtin.examine([image, image_of_nobody], tmp_path)
        assert (found[image].fault is None) == (content == b"right")
        assert (found[image_of_nobody].fault or "").startswith("differs from the built-in image")
