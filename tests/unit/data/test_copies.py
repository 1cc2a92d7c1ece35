"""Exact copies are counted in and between the sets; nothing is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fednode.data.base import DataSettings, Image, Split
from fednode.data.images import Verdict, copies_among
from fednode.data.load import load, look
from tests.unit.data.conftest import MakeFolder

Rows = tuple[tuple[int, str], ...]
"""The label and the content of each image of a split."""


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ((((0, "1"), (1, "2")), (), ((0, "3"), (0, "4"))), []),
        (
            (
                ((0, "1"), (0, "1"), (0, "1"), (1, "2")),
                ((1, "3"),),
                ((1, "1"), (1, "1"), (1, "3"), (0, "9")),
            ),
            [
                ("warning", "2 of 4 test images are exact copies of training images, so the test"),
                ("note", "Images that are exact copies of others: 5. Images that are in several "),
            ],
        ),
    ],
)
def test_copies_are_counted_in_and_between_sets(
    sets: tuple[Rows, Rows, Rows], said: list[tuple[str, str]]
) -> None:
    verdicts, splits = dict[Path, Verdict](), list[Split]()
    for use, rows in enumerate(sets):
        paths = [Path(f"{use}/{at}") for at in range(len(rows))]
        verdicts |= {
            path: Verdict(digest=held) for path, (_, held) in zip(paths, rows, strict=True)
        }
        images = [Image(path, label) for path, (label, _) in zip(paths, rows, strict=True)]
        splits.append(Split(("ant", "bee"), tuple(images)))
    train, validation, test = splits
    found = list(copies_among(train, test, validation, verdicts))
    assert [
        (kind, text[: len(start)]) for (kind, text), (_, start) in zip(found, said, strict=True)
    ] == said
    assert not found or found[-1].text.endswith("several classes: 1.")


def test_a_copy_in_the_other_set_is_a_warning_and_no_fault(make_folder: MakeFolder) -> None:
    root = make_folder({"train": 0, "test": 0})
    for name in ("ant", "bee"):
        shutil.move(make_folder({name: 5}) / name, root / "train" / name)
        shutil.copytree(root / "train" / name, root / "test" / name)
        for kept in ("train", "test"):
            for number in (0, 1) if kept == "train" else (3, 4):
                (root / kept / name / f"00{number}.png").unlink()
    values = DataSettings(path=str(root), shots=0)
    (warned,) = [text for kind, text in look(values)[0] if kind == "warning"]
    assert load(values).warnings == (warned,)
    assert warned.startswith("2 of 6 test images are exact copies of training images")
