"""Patients: what tells them, that no split divides them, and what is said without data.groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.data.base import DataSettings, NodeData
from fednode.data.groups import divided, numbered
from fednode.data.load import load, look
from fednode.errors import DataError
from tests.unit.data.conftest import draw

PERSON = r"person(\d+)"


def make(root: Path, names: list[str]) -> Path:
    for name in names:
        draw(root / name)
    return root


def settings(root: Path, **changes: Any) -> DataSettings:
    return DataSettings(path=str(root), **({"shots": 0, "test": 0.3, "validation": 0.3} | changes))


XRAYS = [
    f"{kind}/person{at}_{kind}_{number}.png"
    for kind, patients in (("normal", range(30)), ("pneumonia", range(20, 50)))
    for at in patients
    for number in range(1 + at % 4)
]
FOLDERS = [name.replace("_", "/", 1) for name in XRAYS]


def patients(data: NodeData) -> list[set[str]]:
    """Return the patients of the training, validation and test images, by the path."""
    return [
        {
            part
            for image in split.images
            for part in image.path.as_posix().replace("_", "/").split("/")
            if part.startswith("person")
        }
        for split in (data.train, data.validation, data.own)
    ]


@pytest.mark.parametrize(
    ("names", "groups"), [(XRAYS, PERSON), (FOLDERS, "folder"), (XRAYS, r"person\d+")]
)
def test_no_patient_is_divided(tmp_path: Path, names: list[str], groups: str) -> None:
    root = make(tmp_path / "images", names)
    data = load(settings(root, groups=groups))
    found = patients(data)
    assert all(found)
    assert sum(map(len, found)) == 50
    assert set().union(*found) == {f"person{at}" for at in range(50)}
    assert sum(len(split.images) for split in (data.train, data.validation, data.own)) == len(XRAYS)
    assert all(
        {image.label for image in split.images} == {0, 1}
        for split in (data.train, data.validation, data.own)
    )
    assert len(set(data.groups.values())) == 50
    assert any(f"The images are of 50 patients by data.groups ({groups})." in note
               for note in data.notes)  # fmt: skip
    assert not any("Numbers in file names" in note for note in data.notes)


def test_a_patient_stays_where_it_is_when_others_come(tmp_path: Path) -> None:
    root = make(tmp_path, XRAYS)
    before = patients(load(settings(root, groups=PERSON)))
    make(root, ["normal/person7_new.png", *(f"normal/person{at}_z.png" for at in range(60, 70))])
    after = patients(load(settings(root, groups=PERSON)))
    assert all(one <= other for one, other in zip(before, after, strict=True))


def test_without_groups_a_number_that_repeats_in_names_is_pointed_out(tmp_path: Path) -> None:
    problems, data = look(settings(make(tmp_path, XRAYS)))
    assert data is not None
    both, _ = divided({image.path: image.path.name.split("_")[0] for split in (data.train, data.own)
                       for image in split.images}, data.train, data.own)  # fmt: skip
    (said,) = [one.text for one in problems if "Numbers in file names" in one.text]
    assert f"{len(both)} of them are in training and in test images" in said
    assert said.endswith(f"such as '{PERSON}'.")


@pytest.mark.parametrize(
    ("names", "start"),
    [
        ([f"image_{at:04}.jpg" for at in range(20)], None),
        ([f"n01440764_{at}.JPEG" for at in range(20)], None),
        ([f"real_001_{at:06}.jpg" for at in range(20)], None),
        ([f"5858bf{at:02x}-23d2-11e8-a6a3-ec086b02610b.jpg" for at in range(20)], None),
        ([f"{at:02}_256.png" for at in range(20)], None),
        ([f"20{19 + at % 2}_{at}.png" for at in range(20)], None),
        (["sun_abc.jpg", "sun_def.jpg"], None),
        ([], None),
        ([f"v_Run_g{at // 4:02}_c{at % 4:02}.avi.png" for at in range(20)], "v_Run_g00"),
        ([f"{at // 3}_{at}.png" for at in range(20)], "0"),
        ([f"scan_1_patient {at // 2} {at}.png" for at in range(20)], "scan_1_patient 0"),
    ],
)
def test_numbers_that_may_be_patients(names: list[str], start: str | None) -> None:
    found = numbered([[Path(name) for name in names]])
    assert len(found) == (0 if start is None else len(names))
    assert start is None or found[Path(names[0])] == start


@pytest.mark.parametrize("groups", ["folder", "dicom:PatientID", r"patient(\d+)", r"person\d+(z)?"])
def test_groups_that_find_no_patient_are_a_fault(tmp_path: Path, groups: str) -> None:
    with pytest.raises(DataError, match="and it finds no patient of any image, such as"):
        load(settings(make(tmp_path, XRAYS), groups=groups))


def test_a_class_of_one_patient_trains_and_is_named(tmp_path: Path) -> None:
    names = [*XRAYS, *(f"rare/person99_{at}.png" for at in range(5)), "rare/other.png"]
    root = make(tmp_path, names)
    (root / "rare/other.png").rename(root / "normal/other.png")
    data = load(settings(root, groups=PERSON))
    notes = " ".join(data.notes)
    assert "No image of 1 classes, such as 'rare', is tested" in notes
    assert "1 of them have one image, whose patient is not known" in notes
    assert sum(image.label == 2 for image in data.train.images) == 5


def test_published_parts_that_divide_a_patient_are_a_fault(tmp_path: Path) -> None:
    root = make(tmp_path, [f"train/{name}" for name in XRAYS] + [f"test/{name}" for name in XRAYS])
    with pytest.raises(DataError, match="have training images and test images"):
        load(settings(root, groups=PERSON, validation=0.0))
    (said,) = [one.text for one in look(settings(root, groups=PERSON, validation=0.0))[0]
               if one.kind == "fault"]  # fmt: skip
    assert said.endswith("divide the published images by patient.")
    assert load(settings(root, groups=PERSON, test=0.0, validation=0.0)).train.images


def test_folders_of_a_published_split_are_no_patients(tmp_path: Path) -> None:
    root = make(tmp_path, [f"{part}/{name}" for part in ("train", "test") for name in FOLDERS])
    for whole in (False, True):
        with pytest.raises(DataError, match="has a published split, whose folders"):
            load(settings(root, groups="folder"), whole=whole)


def test_a_folder_may_be_read_whole(tmp_path: Path) -> None:
    """All images test, of published parts, too, and of classes of one image."""
    root = make(tmp_path / "a", [*XRAYS, "rare/person1_1.png"])
    data = load(settings(root, groups=PERSON), whole=True)
    assert not data.train.images
    assert not data.validation.images
    assert len(data.own.images) == len(XRAYS) + 1
    assert data.train.classes == data.own.classes == ("normal", "pneumonia", "rare")
    assert data.notes == ("The images are of 50 patients by data.groups (person(\\d+)).",)
    parts = make(tmp_path / "b", ["train/a/1.png", "train/b/2.png", "test/a/3.png", "val/c/4.png"])
    (parts / "labels.csv").touch()
    assert len(load(settings(parts), whole=True).own.images) == 4
    one = make(tmp_path / "c", ["cup/1.png", "cup/2.png"])
    assert len(load(settings(one), whole=True).own.images) == 2
    with pytest.raises(DataError, match="takes at least 2"):
        load(settings(one))
