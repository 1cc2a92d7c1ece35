"""Exact copies are counted in and between the sets; nothing is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fednode.data.base import DataSettings, Image, Split
from fednode.data.images import Verdict, copies_among
from fednode.data.load import load, look
from tests.unit.data.conftest import MakeFolder

WARNED = (
    "2 of {} test images are exact copies of training images, so the test accuracy is too high: "
    "remove the copies from the training images or from the test images."
)


@pytest.mark.parametrize(
    ("train", "validation", "test", "said"),
    [
        ("a1 b2", "", "a3 a4", []),
        (
            *("a1 a1 a1 b2", "b3", "b1 b1 b3 a9"),
            [
                ("warning", WARNED.format(4)),
                ("note", "Images that are exact copies of others: 5. Images that are in several "
                         "classes: 1."),
            ],
        ),
    ],
)  # fmt: skip
def test_copies_are_counted_in_and_between_sets(
    train: str, validation: str, test: str, said: list[tuple[str, str]]
) -> None:
    """Each image is written as the letter of its class and a digit for its content."""
    verdicts, splits = dict[Path, Verdict](), list[Split]()
    for use in (train, test, validation):
        images = list[Image]()
        for word in use.split():
            images.append(Image(Path(str(len(verdicts))), "ab".index(word[0])))
            verdicts[images[-1].path] = Verdict(digest=word[1])
        splits.append(Split(("ant", "bee"), tuple(images)))
    trained, tested, validated = splits
    assert list(copies_among(trained, tested, validated, verdicts)) == said


def test_a_copy_in_the_other_set_is_a_warning_and_no_fault(make_folder: MakeFolder) -> None:
    root = make_folder({f"{part}/{name}": 3 for part in ("train", "test") for name in ("a", "b")})
    for name in ("a", "b"):
        shutil.copy(root / "train" / name / "000.png", root / "test" / name / "copy.png")
    values = DataSettings(path=str(root), shots=0)
    assert load(values).warnings == (WARNED.format(8),)
    assert ("warning", WARNED.format(8)) in look(values)[0]
