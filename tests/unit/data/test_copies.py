"""Exact copies are counted in and between the sets; nothing is named."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from fednode.data.base import DataSettings, Image, Split
from fednode.data.copies import note, warnings
from fednode.data.images import Verdict
from fednode.data.load import load, look
from tests.unit.data.conftest import MakeFolder

Row = tuple[str, int, str]
"""A file, its label and its content."""


def split(*rows: Row) -> tuple[Split, dict[Path, Verdict]]:
    images = tuple(Image(Path(file), label) for file, label, _ in rows)
    verdicts = {Path(file): Verdict(digest=held) for file, _, held in rows}
    return Split(("ant", "bee"), images), verdicts


def said(sets: Mapping[str, tuple[Row, ...]]) -> tuple[list[str], list[str]]:
    """Return the warnings and the note on the sets training and test, and others if there are."""
    made = {use: split(*rows) for use, rows in sets.items()}
    verdicts = {path: one for _, held in made.values() for path, one in held.items()}
    splits = {use: one for use, (one, _) in made.items()}
    return warnings(splits["training"], splits["test"], verdicts), note(splits, verdicts)


def test_different_images_are_no_matter() -> None:
    training = (("a", 0, "1"), ("b", 1, "2"))
    assert said({"training": training, "test": (("c", 0, "3"), ("d", 0, "4"))}) == ([], [])


def test_copies_are_counted_in_and_between_sets_and_classes() -> None:
    warned, noted = said(
        {
            "training": (*((name, 0, "1") for name in "abc"), ("d", 1, "2")),
            "validation": (("e", 1, "3"),),
            "test": (("f", 1, "1"), ("g", 1, "1"), ("h", 1, "3"), ("i", 0, "9")),
        }
    )
    assert warned == [
        "2 of 4 test images are exact copies of training images, so the test accuracy is too high: "
        "remove the copies from the training images or from the test images."
    ]
    both = "both among the {} images and among the test images"
    assert noted == [
        "Exact copies of images: 2 among the training images, 1 among the test images, "
        f"1 {both.format('training')}, 1 {both.format('validation')}, 1 in more than one class."
    ]


def test_a_copy_in_the_other_set_is_a_warning_and_no_fault(make_folder: MakeFolder) -> None:
    root = make_folder({"train": 0, "test": 0})
    for name in ("ant", "bee"):
        shutil.move(make_folder({name: 5}) / name, root / "train" / name)
        shutil.copytree(root / "train" / name, root / "test" / name)
        for kept in ("train", "test"):
            for number in (0, 1) if kept == "train" else (3, 4):
                (root / kept / name / f"00{number}.png").unlink()
    values = DataSettings(path=str(root), shots=0)
    warned = [str(one) for one in look(values)[0] if one.warns]
    assert warned == list(load(values).warnings)
    assert warned[0].startswith("2 of 6 test images are exact copies of training images")
    assert not any(one.fatal for one in look(values)[0])
    shutil.rmtree(root / "test")
    shutil.copytree(root / "train", root / "test")
    assert load(values).warnings[0].startswith("6 of 6 test images are exact copies")
