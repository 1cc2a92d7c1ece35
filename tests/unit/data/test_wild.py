"""Folders as people have them: what is read, and the sentence for what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.core.types import Message, Tensors
from fednode.data.base import DataSettings
from fednode.data.load import load, look
from fednode.data.names import for_layout
from fednode.wire import codec
from tests.unit.data.conftest import draw

FIVE = 5
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes files: of a folder, FIVE images; other names are text."""

    def made(*names: str) -> Path:
        for name in names:
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                for number in range(FIVE):
                    draw(path / f"{number}.png")
            else:
                path.write_text("a,b")
        return tmp_path / "root"

    return made


def said(root: Path, **changes: object) -> str:
    problems, _ = look(DataSettings(path=str(root), shots=0, **changes))  # type: ignore[arg-type]
    return " ".join(text for _, text in problems)


NO_CLASSES = "holds no folder for each class, it seems"
REFUSED = [
    (("one.jpg",), "holds images but no class folders"),
    ((".hidden",), "is empty: it must hold one folder per class"),
    (("train/", "test/", "train.csv"), f"{NO_CLASSES}: its folders 'test', 'train' are named"),
    (
        ("train/", "test/", "train.csv"),
        "classes; the table 'train.csv' lies beside them. If a table names the class of each "
        "image, set data.table to '{root}/train.csv'; otherwise",
    ),
    (("train_images/", "test_images/"), NO_CLASSES),
    (("HAM10000_images_part_1/", "HAM10000_images_part_2/"), NO_CLASSES),
    (("images_001/", "images_002/"), NO_CLASSES),
    (("Train/", "cup/"), NO_CLASSES),
    (("cup/", "crab/", "labels.XLSX"), "the table 'labels.XLSX' lies beside them"),
    (("cup/", "crab/", "meta.tsv"), "list them in data.classes"),
    (("train/cup/", "train/crab/", "test/"), "part (train), not for each class: point data.path"),
    (("train/cup/", "train/crab/", "train/", "test/cup/"), "such as '{root}/train'"),
    (("test/cup/", "testing/crab/"), "the images to train on are missing"),
    (("images_001/images/", "images_002/images/", "images.csv"), "set data.table to it"),
    (("photo/cup/", "sketch/cup/"), "a folder for each domain or part (photo, sketch), not"),
    (("a/cup/", "b/cup/", "c/cup/", "d/cup/", "e/cup/", "f/cup/"), "(a, b, c, d and 2 more"),
    (("test/cup/", "extra/cup/"), "such as '{root}/extra'"),
    (("train/cup/", "unlabelled/cup/"), "such as '{root}/train'"),
    (
        ("Crab/", "crab/"),
        "'Crab' and 'crab' for the class 'crab': a model takes both names for one",
    ),
    (("crab/", "crab /"), "a model takes both names for one"),
    (("sea crab/", "sea  crab/"), "a model takes both names for one"),
    (("crab's/", "crab\u2019s/"), "a model takes both names for one"),
    (("salt & pepper/", "salt &amp; pepper/"), "a model takes both names for one"),
    (("cup/", "\uff43\uff55\uff50/"), "a model takes both names for one"),
    (("stra\u00dfe/", "STRASSE/"), "a model takes both names for one"),
    (("cup/", "c\u00adup/"), "a model takes both names for one"),
    (("cup/", "cu\u200dp/"), "a model takes both names for one"),
    (("train/Cup/", "train/cup/", "test/Cup/"), "a model takes both names for one"),
    (("cup/", "crab\ue000/"), "has the character U+E000, which cannot be sent to peers: rename"),
    (("cup/", "\u200b/"), "has a name without a letter"),
    (
        ("cup/", "crab/1.heic", "crab/2.HEIC"),
        "holds 2 files, and no suffix that is read (.heic)",
    ),
]


@pytest.mark.parametrize(("names", "sentence"), REFUSED)
def test_what_is_no_folder_of_classes_is_refused(
    make: Make, names: tuple[str, ...], sentence: str
) -> None:
    root = make(*names)
    problems, data = look(DataSettings(path=str(root), shots=0))
    assert data is None
    text = " ".join(text for _, text in problems)
    assert sentence.replace("{root}", str(root)) in text
    assert "/test'." not in text


READ = [
    (("train/a/", "train/b/", "test/a/", "test/b/", "train/labels.csv"), "labels.csv", ("a", "b")),
    (("train/a/", "train/b/", "dev/a/"), "", ("a", "b")),
    (("train/a/", "train/b/", "test/a/", "extra/c/"), "extra", ("a", "b")),
    (("a/", "b/", "@eaDir/", "lost+found/", "$RECYCLE.BIN/"), "", ("a", "b")),
    (("grand\u00a0piano/", "cup/"), "", ("cup", "grand piano")),
    (("cafe\u0301/", "a\tb/"), "", ("a b", "caf\u00e9")),
    (("\ufeffcup/", "\u200ecr\u00adab\u200f/"), "", ("crab", "cup")),
    (("\u0645\u06cc\u200c\u062e/", "a/"), "", ("a", "\u0645\u06cc\u200c\u062e")),
]


@pytest.mark.parametrize(("names", "sentence", "classes"), READ)
def test_what_is_one_is_read_and_its_names_can_be_sent(
    make: Make, names: tuple[str, ...], sentence: str, classes: tuple[str, ...]
) -> None:
    root = make(*names)
    data = load(DataSettings(path=str(root), shots=0))
    assert tuple(sorted(data.train.classes)) == classes
    assert sentence in said(root)
    message = Message(
        mesh="m", fingerprint="", policy="gda", sender="a", round=1, phase="sums",
        tensors=Tensors({"rows": [[1.0]] * len(classes)}, classes),
    )  # fmt: skip
    assert codec.decode(codec.encode(message, "float32")) == message


def test_a_name_that_cannot_be_sent_gets_another(make: Make) -> None:
    root = make("cup/", "crab\ue000/")
    settings = DataSettings(path=str(root), rename={"crab\ue000": "crab"})
    assert load(settings).train.classes == ("crab", "cup")


def test_folders_that_are_classes_can_be_listed(make: Make) -> None:
    root = make("valid/", "invalid/", "test.csv")
    assert NO_CLASSES in said(root)
    assert load(DataSettings(path=str(root), classes=("invalid", "valid"))).train.images


@pytest.mark.parametrize(
    "name", ["photo", "sketch", "cup", "train station", "testudo", "0", "set 1a"]
)
def test_names_of_classes_are_not_taken_for_parts(name: str) -> None:
    assert not for_layout(name)


SPLIT = {"train": [["a/0.png", 0, "cup"], ["b/0.png", 1, "crab"]], "test": [["a/1.png", 0, "cup"]]}
BACK = {"train": [["a\\0.png", 0, "cup"], ["b\\0.png", 1, "crab"]]}
TWINS = {"train": [["a/0.png", 0, "Cup"], ["b/0.png", 1, "cup"]]}


@pytest.mark.parametrize(
    ("split", "encoding", "sentence"),
    [
        (SPLIT, "utf-8-sig", "Classes, their order and the test images are those of"),
        (SPLIT, "utf-16", "cannot be read: line 1 is not UTF-8 text: save it as UTF-8."),
        (SPLIT, "utf-16-be", "cannot be read: it is no text in UTF-8: save it as UTF-8."),
        (BACK, "utf-8", "writes paths with backslashes, such as 'a\\0.png': write them with '/'."),
        (TWINS, "utf-8", "'Cup' and 'cup' for the class 'cup': a model takes both names for one"),
    ],
)
def test_a_split_file_as_windows_writes_it(
    make: Make, split: object, encoding: str, sentence: str
) -> None:
    root = make("a/", "b/")
    (root / "split_zhou_own.json").write_text(json.dumps(split), encoding=encoding)
    assert sentence in said(root)
