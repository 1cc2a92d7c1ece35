"""Data sets with published splits, as small made-up trees of the published shapes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fednode.data.base import DataSettings, NodeData, PartitionSettings, Split
from fednode.data.load import load, look
from fednode.data.official import read_folder
from fednode.errors import DataError
from fednode.lab.experiment.scene import domains
from tests.unit.data.conftest import draw
from tools import splits

CARS = ("2012 AM General Hummer", "2000 Acura TL", "1998 Audi 100", "2011 BMW X6", "1993 Geo Metro")
"""By label; by name they would stand in the order of their years."""
PARTS = {"train": 4, "val": 2, "test": 3}
Row = list[Any]

LAYOUTS = {
    "caltech-101": ("split_zhou_Caltech101.json", "101_ObjectCategories", "{name}/i_{at:04d}.jpg"),
    "oxford_pets": ("split_zhou_OxfordPets.json", "images", "{name}_{at}.jpg"),
    "stanford_cars": ("split_zhou_StanfordCars.json", "", "cars_{part}/{label}{at:05d}.jpg"),
    "oxford_flowers": ("split_zhou_OxfordFlowers.json", "jpg", "image_{label}{at:05d}.jpg"),
    "food-101": ("split_zhou_Food101.json", "images", "{name}/{at}.jpg"),
    "sun397": ("split_zhou_SUN397.json", "SUN397", "a/{name}/outdoor/sun_{at}.jpg"),
    "dtd": ("split_zhou_DescribableTextures.json", "images", "{name}/{name}_{at:04d}.jpg"),
    "eurosat": ("split_zhou_EuroSAT.json", "2750", "{name}/{name}_{at}.jpg"),
    "ucf101": ("split_zhou_UCF101.json", "UCF-101-midframes", "{name}/v_{name}_g01_c{at}.jpg"),
    "my_own": ("split_zhou_Mine.json", "", "pictures/{name}-{at}.jpg"),
}  # fmt: skip


def settings(root: Path, **changes: object) -> DataSettings:
    return replace(DataSettings(path=str(root), shots=0), **changes)  # type: ignore[arg-type]


def write(root: Path, split: Mapping[str, list[Row]]) -> None:
    (root / LAYOUTS[root.name][0]).write_text(json.dumps(split))


def coop(root: Path, layout: str, names: Sequence[str] = CARS) -> dict[str, list[Row]]:
    """Write a data set in CoOp's layout; return its split, whose rows stand in no order."""
    _, folder, pattern = LAYOUTS[layout]
    split: dict[str, list[Row]] = {}
    for number, (part, count) in enumerate(PARTS.items()):
        rows: list[Row] = []
        for label, name in enumerate(names):
            for at in range(100 * number, 100 * number + count):
                image = pattern.format(name=name, label=label, part=part, at=at)
                rows.append([image, label, name])
        for row in rows:
            draw(root / layout / folder / row[0])
        split[part] = rows[::-1]
    write(root / layout, split)
    return split


def files(split: Split | None) -> set[tuple[str, str]]:
    assert split is not None
    return {(str(one.path), split.classes[one.label]) for one in split.images}


def rows(
    split: Mapping[str, list[Row]], part: str, base: Path, labels: range
) -> set[tuple[str, str]]:
    return {(str(base / one[0]), one[2]) for one in split[part] if one[1] in labels}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_coops_splits_give_halves_by_label_and_their_own_test_images(
    tmp_path: Path, layout: str
) -> None:
    split = coop(tmp_path, layout)
    base = tmp_path / layout / LAYOUTS[layout][1]
    data = load(settings(tmp_path / layout, halves=True, validation=0.1))
    middle = math.ceil(len(CARS) / 2)
    first, rest = range(middle), range(middle, len(CARS))
    assert data.base is not None
    assert data.new is not None
    assert data.train.classes == data.base.classes == CARS[:middle]
    assert data.new.classes == CARS[middle:]
    assert sorted(CARS)[:middle] != sorted(CARS[:middle]), "halves by name would be others"
    assert files(data.train) == rows(split, "train", base, first)
    assert files(data.validation) == rows(split, "val", base, first)
    assert files(data.base) == rows(split, "test", base, first)
    assert files(data.new) == rows(split, "test", base, rest)
    assert data.notes[0] == (
        f"Classes, their order and the test images are those of '{LAYOUTS[layout][0]}'."
    )


def test_without_validation_images_the_published_ones_are_left_alone(tmp_path: Path) -> None:
    split = coop(tmp_path, "dtd")
    data = load(settings(tmp_path / "dtd"))
    assert not data.validation.images
    assert files(data.train) == rows(split, "train", tmp_path / "dtd/images", range(5))


def test_without_a_test_set_all_images_train(tmp_path: Path) -> None:
    coop(tmp_path, "dtd")
    data = load(settings(tmp_path / "dtd", test=0.0))
    assert len(data.train.images) == len(CARS) * sum(PARTS.values())
    assert "data.test is 0, so its test images train" in data.notes[0]


def test_shots_blocks_and_shares_come_from_the_training_images(tmp_path: Path) -> None:
    split = coop(tmp_path, "food-101")
    root, base = tmp_path / "food-101", tmp_path / "food-101/images"
    blocks = [
        load(settings(root, shots=2, partition=PartitionSettings("classes", at, 2)))
        for at in (0, 1)
    ]
    assert [one.train.classes for one in blocks] == [CARS[:2], CARS[2:]]
    assert all(files(one.train) < rows(split, "train", base, range(5)) for one in blocks)
    shares = [
        load(settings(root, validation=0.3, partition=PartitionSettings("dirichlet", at, 2, 100.0)))
        for at in (0, 1)
    ]
    held = [files(one.train) | files(one.validation) for one in shares]
    assert held[0] | held[1] == rows(split, "train", base, range(5))
    assert not held[0] & held[1]


def test_classes_may_be_chosen_and_keep_the_order_of_their_labels(tmp_path: Path) -> None:
    coop(tmp_path, "stanford_cars")
    chosen = (CARS[4], CARS[0], CARS[2])
    data = load(settings(tmp_path / "stanford_cars", classes=chosen, halves=True))
    assert data.train.classes == (CARS[0], CARS[2])
    assert data.new is not None
    assert data.new.classes == (CARS[4],)


def test_aircraft_are_ordered_by_the_list_of_variants(tmp_path: Path) -> None:
    root = tmp_path / "fgvc_aircraft"
    names = ("A340-600", "707-320", "F/A-18", "DR-400")
    root.mkdir()
    (root / "variants.txt").write_text("\n".join(names) + "\n")
    for number, (part, count) in enumerate(PARTS.items()):
        lines = []
        for label, name in enumerate(names):
            for at in range(count):
                image = f"{number}{label}{at:05d}"
                draw(root / "images" / f"{image}.jpg")
                lines.append(f"{image} {name}")
        (root / f"images_variant_{part}.txt").write_text("\n".join(lines[::-1]) + "\n")
    splits.main(["aircraft", str(root)])
    data = load(settings(root, halves=True))
    assert data.train.classes == names[:2]
    assert data.new is not None
    assert data.new.classes == names[2:]
    assert {path[0].removeprefix(str(root)) for path in files(data.base)} == {
        f"/images/2{label}{at:05d}.jpg" for label in range(2) for at in range(3)
    }


def load_each(values: DataSettings) -> dict[str, NodeData]:
    """Return the data of each domain in a folder of domains."""
    folders = domains(Path(values.path))
    return {name: load(replace(values, path=str(one))) for name, one in folders.items()}


@pytest.mark.parametrize("where", ["", "splits"])
def test_domain_net_has_its_lists_beside_or_below_its_domains(tmp_path: Path, where: str) -> None:
    root = tmp_path / "DomainNet"
    names = ("The_Eiffel_Tower", "aircraft_carrier", "axe")
    (root / where).mkdir(parents=True, exist_ok=True)
    for domain in ("clipart", "real"):
        for part, count in (("train", 4), ("test", 2)):
            lines = []
            for label, name in enumerate(names):
                for at in range(count):
                    file = f"{domain}/{name}/{domain}_{part}_{at:06d}.jpg"
                    draw(root / file)
                    lines.append(f"{file} {label}")
            (root / where / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
        draw(root / domain / "axe" / "listed_nowhere.jpg")
    with pytest.raises(DataError, match=f"run `python -m tools.splits domainnet {root}`"):
        load_each(settings(root))
    splits.main(["domainnet", str(root)])
    assert list(domains(root)) == ["clipart", "real"]
    found = load_each(settings(root))
    for domain, data in found.items():
        assert data.train.classes == ("The Eiffel Tower", "aircraft carrier", "axe")
        assert (len(data.train.images), len(data.own.images)) == (12, 6)
        assert all(f"{domain}_test_" in path for path, _ in files(data.own))


def test_vlcs_as_published_has_numbered_classes_in_parts(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("crossval", 2), ("test", 3), ("full", 9)):
        for label in range(5):
            for at in range(count):
                draw(tmp_path / "VLCS/CALTECH" / part / str(label) / f"imgs_{label}{at}.jpg")
    splits.main(["vlcs", str(tmp_path / "VLCS")])
    data = load(settings(tmp_path / "VLCS/CALTECH", validation=0.1))
    assert data.train.classes == ("bird", "car", "chair", "dog", "person")
    sizes = [len(one.images) for one in (data.train, data.validation, data.own)]
    assert sizes == [20, 10, 15]
    assert {Path(path).parts[-3] for path, _ in files(data.validation)} == {"crossval"}


@pytest.mark.parametrize("names", ["Training Testing", "TRAIN test Valid", "train Validation"])
def test_parts_may_be_written_in_other_ways(tmp_path: Path, names: str) -> None:
    for part, count in zip(parts := names.split(), (1, 3, 2), strict=False):
        for at in range(2 * count):
            draw(tmp_path / part / ("ant", "bee")[at % 2] / f"{part}{at}.jpg")
    data = load(settings(tmp_path, validation=0.1 * (len(parts) - 2)))
    assert f"those of '{tmp_path.name}/{parts[0]}'." in data.notes[0]
    for part, split in zip(parts, (data.train, data.own, data.validation), strict=False):
        assert {Path(path).parts[-3] for path, _ in files(split)} == {part}


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    for name in ("train", "test", "bus"):
        for at in range(3):
            draw(tmp_path / name / f"{at}.jpg")
    assert [one.name for one in read_folder(tmp_path).classes] == ["bus", "test", "train"]


def test_a_data_set_without_a_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no split of domainnet"):
        splits.main(["domainnet", str(tmp_path)])
    with pytest.raises(SystemExit, match="usage: "):
        splits.main(["coco", str(tmp_path)])


def test_missing_files_are_skipped_and_named(tmp_path: Path) -> None:
    coop(tmp_path, "dtd")
    gone = next((tmp_path / "dtd/images" / CARS[1]).glob("*_0100.jpg"))
    gone.unlink()
    data = load(settings(tmp_path / "dtd"))
    assert data.skipped == (
        (gone, "named by 'split_zhou_DescribableTextures.json', and not there"),
    )


def test_an_image_listed_twice_is_tested_only(tmp_path: Path) -> None:
    split = coop(tmp_path, "dtd")
    split["train"].append(split["test"][0])
    write(tmp_path / "dtd", split)
    data: NodeData = load(settings(tmp_path / "dtd"))
    assert not files(data.train) & files(data.own)
    assert len(data.own.images) == len(CARS) * PARTS["test"]


def test_a_class_without_training_images_is_named(tmp_path: Path) -> None:
    split = coop(tmp_path, "dtd")
    split["train"] = [one for one in split["train"] if one[1] != 3]
    write(tmp_path / "dtd", split)
    said = [text for kind, text in look(settings(tmp_path / "dtd"))[0] if kind == "fault"]
    assert said == [
        f"The class '{CARS[3]}' of 'split_zhou_DescribableTextures.json' has no image to train on "
        f"in '{tmp_path / 'dtd/images'}': add the missing files, or leave the class out through "
        "data.classes."
    ]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{", "cannot be read: Expecting property name"),
        ("[1]", "has no list `train`"),
        ({"train": [["a.jpg", 0]]}, r"has \['a.jpg', 0\] as entry 0 of `train`; an entry is"),
        ({"train": [], "test": 3}, "has 3 as entry 0 of `test`"),
        ({"train": [["a.jpg", "x", "ant"]]}, "'x', 'ant'. as entry 0 of `train`"),
        ({"train": [["a.jpg", -1, "ant"]]}, "-1, 'ant'. as entry 0 .* labels count from 0."),
        ('{"train": [["a.jpg", Infinity, "ant"]]}', "inf, 'ant'. as entry 0"),
        ({"train": [["../a.jpg", 0, "ant"]]}, "names '../a.jpg', which lies outside"),
        ({"train": [["/etc/a.jpg", 0, "ant"]]}, "names '/etc/a.jpg', which lies outside"),
        (
            {"train": [["a", 0, "ant"], ["b", 0, "bee"]]},
            "'ant' the label 0, and .* 'bee' the label 0",
        ),
        (
            {"train": [["a", 0, "ant"], ["b", 1, "ant"]]},
            "'ant' the label 0, and .* 'ant' the label 1",
        ),
        ({"train": [["a", 0, "ant"]]}, "names 1 images, and none of them lies in"),
    ],
)
def test_a_split_file_that_does_not_fit_is_a_sentence(
    tmp_path: Path, written: object, said: str
) -> None:
    text = written if isinstance(written, str) else json.dumps(written)
    (tmp_path / "split_zhou_Mine.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_folder(tmp_path)


def test_two_split_files_are_refused(tmp_path: Path) -> None:
    for name in ("A", "B"):
        (tmp_path / f"split_zhou_{name}.json").write_text("{}")
    with pytest.raises(DataError, match=r"holds 2 split files, 'split_zhou_A\.json'"):
        read_folder(tmp_path)
