"""Classes of images from a table: the layouts of Kaggle, APTOS and HAM10000, and wrong tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fednode.data.base import DataSettings, NodeData
from fednode.data.load import load, look
from fednode.errors import DataError
from tests.unit.data.conftest import draw

Labels = dict[str, str]
"""The class of each file, by its path from the root."""
CATS = {f"train/{at}.png": "cat" if at % 2 else "dog" for at in range(8)}
GRADES = {f"train_images/{at:012x}.png": str(at % 3) for at in range(12)}
MOLES = {
    f"HAM10000_images_part_{1 + at // 5}/ISIC_{at:07}.jpg": ("bkl", "nv")[at % 2]
    for at in range(10)
}
CYSTS = {f"Export/Bilder/{at}.png": ("gesund", "Zyste; rechts")[at % 2] for at in range(6)}
TABS = {"a/x.png": "cup", "a/y.png": "crab", "b/x.png": "crab", "b/z.png": "cup"}
KAGGLE = "\ufefffile,label\n" + "".join(f"{file},{kind}\n" for file, kind in CATS.items())
APTOS = "id_code,diagnosis\n" + "".join(
    f"{Path(file).stem},{kind}\n" for file, kind in GRADES.items()
)
HAM = "lesion_id,image_id,dx,dx_type,age\n" + "".join(
    f"HAM_1,{Path(file).stem},{kind},histo,80.0\n" for file, kind in MOLES.items()
)
HOSPITAL = 'Nr;"Datei";"Befund"\r\n' + "".join(
    f'{at};"Bilder\\{at}.png";"{kind}"\r\n' for at, kind in enumerate(CYSTS.values())
)
TABBED = "Image Path\tClass Name\na/x\tcup\na/y\tcrab\n../root/b/x.png\tcrab\nz\tcup\n"


def write(
    root: Path, files: list[str], table: str, name: str = "t.csv", code: str = "utf-8"
) -> Path:
    """Write a table beside images that all differ; return the table's path."""
    for file in files:
        draw(root / file)
    (root / name).write_bytes(table.encode(code))
    return root / name


def settings(root: Path, table: Path | str, **changes: Any) -> DataSettings:
    return DataSettings(path=str(root), table=str(table), **({"shots": 0} | changes))


def labels(data: NodeData) -> dict[str, str]:
    """Return the class of each image by its file's name."""
    return {
        image.path.name: split.classes[image.label]
        for split in (data.train, data.own)
        for image in split.images
    }


@pytest.mark.parametrize(
    ("wanted", "text", "folder", "changes"),
    [
        (CATS, KAGGLE, "", {}),
        (CATS, KAGGLE, "train", {}),
        (GRADES, APTOS, "train_images", {}),
        (MOLES, HAM, "", {}),
        (CYSTS, HOSPITAL, "", {"columns": ("Datei", "Befund")}),
        (TABS, TABBED, "", {}),
    ],
    ids=["Kaggle", "data.path is the folder", "APTOS", "HAM10000", "a hospital", "tabs"],
)
def test_each_image_gets_the_class_of_its_line(
    tmp_path: Path, wanted: Labels, text: str, folder: str, changes: dict[str, Any]
) -> None:
    root = tmp_path / "root"
    table = os.path.relpath(write(root, list(wanted), text), root / folder)
    data = load(settings(root / folder, table, **changes))
    images = [(image, split.classes) for split in (data.train, data.own) for image in split.images]
    assert len(images) == len(wanted)
    found = {str(one.path.relative_to(root)): classes[one.label] for one, classes in images}
    assert found == wanted


FILES = ["a.png", "b.png", "c.png", "d.png", "f.jpg", "f.png", "x/e.png", "y/e.png"]
GOOD = "file,label\na.png,cup\nb.png,cup\nc.png,crab\nd.png,crab\n"

WRONG = {
    "missing": ("", "t2.csv", {}, "The table '{root}/t2.csv' does not exist: a path in"),
    "a spreadsheet": (GOOD, "t.xlsx", {}, "tables are read as CSV: save it as CSV (UTF-8)."),
    "empty": ("", "t.csv", {}, "names no image: its first line names the columns."),
    "no rows": ("file,label\n\n", "t.csv", {}, "names no image: its first line"),
    "no column of files": (
        GOOD.replace("file", "what"), "t.csv", {},
        "'{root}/t.csv' has no column whose name says that it holds the files; it has what, label: "
        "set data.columns to the column of files and the column of classes.",
    ),
    "no column of classes": (
        GOOD.replace("label", "what"), "t.csv", {}, "holds the classes; it has file, what: set",
    ),
    "two columns of classes": (
        GOOD.replace("file,label", "file,label,target"), "t.csv", {},
        "has several columns that may be the classes (label, target); it has file, label, target:",
    ),
    "a column that is not there": (
        GOOD, "t.csv", {"columns": ("file", "dx")},
        "has no column 'dx', which data.columns names; it has file, label: set data.columns",
    ),
    "two classes of a file": (
        GOOD + "./a.png,crab\n", "t.csv", {},
        "gives './a.png' the class 'cup' in line 2 and 'crab' in line 6: an image has one class.",
    ),
    "no file": (GOOD + ",crab\n", "t.csv", {}, "names no file in line 6: name it, or drop the"),
    "a class with the separator in it": (
        GOOD + "x/e.png,cup, broken\n", "t.csv", {},
        "has 3 cells in line 6 and 2 columns: put a text that holds a separator (',') between",
    ),
    "a quote that nothing closes": (
        GOOD.replace("b.png,cup", 'b.png,"cup'), "t.csv", {}, "cannot be read: unexpected end of",
    ),
    "no class at all": (
        "file,label\na.png,\nb.png, \n", "t.csv", {},
        "gives no image a class: its column of classes is empty.",
    ),
    "no image that is there": (
        "file,label\nq.png,cup\nr.png,crab\n", "t.csv", {},
        "names 2 images, such as 'q.png', and none of them lies in '{root}': set data.path to the",
    ),
    "two files of a name": (
        GOOD + "f,cup\n", "t.csv", {},
        "names 'f' in line 6, which may be '{root}/f.jpg' or '{root}/f.png': write the path from",
    ),
    "one name in two folders": (
        "file,label\ne.png,cup\n", "t.csv", {},
        "names images without their folders, such as 'e.png' in '{root}/x' and 'e.png' in "
        "'{root}/y': write paths from data.path, or set data.path to the folder of the table's",
    ),
    "names that a model takes for one": (
        GOOD.replace("d.png,crab", "d.png,Crab"), "t.csv", {}, "a model takes both names for one",
    ),
    "one class": ("file,label\na.png,cup\nb.png,cup\n", "t.csv", {}, "gives 1 class to tell apart"),
    "one image of a class": (
        "file,label\na.png,cup\nb.png,cup\nc.png,crab\n", "t.csv", {},
        "The class 'crab' of 't.csv' holds 1 readable image; a test split needs at least 2",
    ),
    "only absent images of a class": (
        "file,label\na.png,cup\nb.png,cup\nq.png,crab\n", "t.csv", {},
        "The class 'crab' of 't.csv' has no image to train on in '{root}': add the missing files",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_one_sentence(tmp_path: Path, case: str) -> None:
    text, name, changes, sentence = WRONG[case]
    root = tmp_path / "root"
    write(root, FILES, text)
    (root / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError) as fault:
        load(settings(root, root / name, **changes))
    assert sentence.replace("{root}", str(root)) in str(fault.value)
    assert str(fault.value).count(". ") == 0


def test_a_table_in_another_encoding_is_named(tmp_path: Path) -> None:
    table = write(tmp_path, FILES, GOOD.replace("cup", "c\xfcp"), code="latin-1")
    with pytest.raises(DataError, match="cannot be read: line 2 is not UTF-8 text: save it as"):
        load(settings(tmp_path, table))


def test_what_a_table_leaves_open_is_counted_and_named(tmp_path: Path) -> None:
    text = GOOD + "a.png,cup\nq.png,cup\nx/e.png,\n"
    problems, data = look(settings(tmp_path, write(tmp_path, FILES, text)))
    assert data is not None
    assert labels(data) == {"a.png": "cup", "b.png": "cup", "c.png": "crab", "d.png": "crab"}
    said = [text for _, text in problems]
    assert f"The classes of the images are those of '{tmp_path}/t.csv'." in said
    assert "1 lines of 't.csv' repeat one; an image counts once." in said
    assert "'t.csv' does not name 4 images, which are not used." in said
    assert any("named by 't.csv', and not there" in one and "q.png" in one for one in said)
    assert any("no class in 't.csv'" in one and "x/e.png" in one for one in said)


@pytest.mark.parametrize("train", ["", "train/", "train_1/"])
def test_no_test_image_gets_the_class_of_a_training_image(tmp_path: Path, train: str) -> None:
    """The table names 0 to 5; image 5 was not copied, and another lies among the test images."""
    table = write(
        tmp_path / "all",
        [*(f"{train}{at}.png" for at in range(5)), *(f"test/{at}.png" for at in range(5, 9))],
        "file,label\n" + "".join(f"{at},{'cat' if at % 2 else 'dog'}\n" for at in range(6)),
    )
    root = tmp_path / "all"
    if train:
        with pytest.raises(DataError) as fault:
            load(settings(root, table))
        assert f"'0.png' in '{root / train}' and '5.png' in '{root / 'test'}': write" in str(
            fault.value
        )
    data = load(settings(root / train, table))
    assert sorted(labels(data)) == [f"{at}.png" for at in range(5)]
    assert any("named by 't.csv', and not there" in why for _, why in data.skipped)


@pytest.mark.parametrize(
    ("name", "folder", "fits"),
    [
        ("train.csv", "test_images", False),
        ("t.csv", "Test", False),
        ("test.csv", "test_images", True),
        ("t.csv", "contest", True),
    ],
)
def test_a_folder_of_test_images_alone_is_not_that_of_another_table(
    tmp_path: Path, name: str, folder: str, fits: bool
) -> None:
    """The folder of the training images is missing, and test images have the same names."""
    text = "file,label\n" + "".join(f"{at},{'cat' if at % 2 else 'dog'}\n" for at in range(6))
    table = write(tmp_path, [f"{folder}/{at}.png" for at in range(6)], text, name)
    if fits:
        assert len(labels(load(settings(tmp_path, table)))) == 6
    else:
        with pytest.raises(DataError, match=r"is named as a folder of test images: set data\.path"):
            load(settings(tmp_path, table))
    assert len(labels(load(settings(tmp_path / folder, table)))) == 6


def test_a_name_with_its_suffix_is_that_file(tmp_path: Path) -> None:
    files = ["in/a.png", "in/a.png.png", "in/b.png"]
    table = write(tmp_path, files, "file,label\na.png,cup\nb.png,crab\n")
    assert labels(load(settings(tmp_path, table, test=0))) == {"a.png": "cup", "b.png": "crab"}


@pytest.mark.parametrize(("crab", "cup"), [("0", "1"), ("n01440764", "n01443537")])
def test_classes_that_are_numbers_get_names(tmp_path: Path, crab: str, cup: str) -> None:
    text = GOOD.replace("cup", cup).replace("crab", crab)
    table = write(tmp_path, FILES, text)
    said = " ".join(text for _, text in look(settings(tmp_path, table))[0])
    assert f'give them names, such as data.rename: {{"{crab}": healthy}}.' in said
    data = load(settings(tmp_path, table, rename={crab: "healthy", cup: "ill"}))
    assert set(labels(data).values()) == {"healthy", "ill"}


def test_links_back_to_a_folder_end(tmp_path: Path) -> None:
    table = write(tmp_path / "root", FILES, GOOD)
    (tmp_path / "root" / "again").symlink_to(tmp_path / "root")
    data = load(settings(tmp_path / "root", table.name))
    assert len(labels(data)) == 4
    assert "'t.csv' does not name 4 images, which are not used." in data.notes
