"""From settings to one node's splits, and the sentences for everything that can be wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fednode.data import images
from fednode.data import load as module
from fednode.data.base import DataSettings, PartitionSettings, Split
from fednode.data.folder import scan
from fednode.data.images import Verdict
from fednode.data.load import load, look
from fednode.errors import DataError
from fednode.learn.cache import FeatureCache
from tests.unit.data.conftest import MakeFolder


def settings(root: Path, **changes: object) -> DataSettings:
    return replace(DataSettings(path=str(root), shots=4), **changes)  # type: ignore[arg-type]


def part(how: str, index: int, count: int, alpha: float = 0.3) -> PartitionSettings:
    return PartitionSettings(how, index, count, alpha)  # type: ignore[arg-type]


def paths(split: Split) -> set[Path]:
    return {image.path for image in split.images}


def labels_fit(split: Split) -> bool:
    """Tell whether each label indexes the class whose folder the image lies in."""
    return all(
        split.classes[image.label] == image.path.parent.name.replace("_", " ")
        for image in split.images
    )


def test_classes_and_files_are_sorted_by_name(make_folder: MakeFolder) -> None:
    found = scan(make_folder({"cat": 2, "Zebra": 1, "cafe\u0301": 1}))
    assert [one.name for one in found.classes] == ["Zebra", "caf\u00e9", "cat"], "composed"
    assert [path.name for path in found.classes[2].images] == ["000.png", "001.png"]


def test_hidden_files_and_litter_are_ignored(make_folder: MakeFolder) -> None:
    root = make_folder({"ant": 1})
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "ant" / ".hidden.jpg").touch()
    (root / "ant" / "Thumbs.db").touch()
    found = scan(root)
    assert [one.name for one in found.classes] == ["ant"]
    assert not found.classes[0].others
    assert not found.strays


def test_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fednode.data.folder.os.scandir", refuse)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        scan(tmp_path)


def test_link_loops_do_not_trap_the_walk(make_folder: MakeFolder) -> None:
    root = make_folder({"ant": 1})
    (root / "ant" / "up").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    found = scan(root)
    assert [one.name for one in found.classes] == ["ant"]
    assert [path.name for path, _ in found.classes[0].others] == ["up"]
    assert [path.name for path, _ in found.strays] == ["self"]


def test_all_splits_of_one_folder(make_folder: MakeFolder) -> None:
    data = load(settings(make_folder({"bee": 10, "big_ant": 10}), validation=0.25), fixed=True)
    assert data.train.classes == data.own.classes == ("bee", "big ant")
    assert [len(split.images) for split in (data.train, data.validation, data.own)] == [8, 4, 4]
    assert not paths(data.train) & paths(data.own)
    assert not paths(data.validation) & (paths(data.train) | paths(data.own))
    assert all(map(labels_fit, (data.train, data.validation, data.own)))
    assert (data.base, data.new, data.skipped, data.warnings) == (None, None, (), ())
    assert data.notes == ("This node uses 8 of 12 training images: data.shots is 4; 0 takes all.",)


@pytest.mark.parametrize("name", ["000000.png", "zzz.png"])
@pytest.mark.parametrize("parted", [False, True])
def test_images_that_are_added_or_renamed_turn_no_test_image_into_a_training_image(
    make_folder: MakeFolder, name: str, parted: bool
) -> None:
    """Also where test images are published: then no validation image becomes a training image."""
    root = folder = make_folder({"ant": 40, "bee": 40})
    if parted:
        root = folder.rename(folder.with_name("train")).parent
        (root / "test").mkdir()
        for kind in ("ant", "bee"):
            (root / "test" / kind).mkdir()
            (root / "train" / kind / "039.png").rename(root / "test" / kind / "39.png")
        folder = root / "train"

    def parts() -> dict[bytes, str]:
        data = load(settings(root, shots=0, test=0.3, validation=0.3))
        named = {"train": data.train, "validation": data.validation, "test": data.own}
        return {path.read_bytes(): part for part, of in named.items() for path in paths(of)}

    before = parts()
    counts = Counter(before.values())
    assert len(before) == 80
    assert min(counts.values()) >= (2 if parted else 10)
    Image.new("RGB", (7, 7), "red").save(folder / "ant" / name)
    (folder / "bee" / "003.png").rename(folder / "bee" / name)
    after = parts()
    assert before.items() <= after.items()
    assert len(after) == 81


def test_halves_train_on_base_and_test_on_both(make_folder: MakeFolder) -> None:
    data = load(settings(make_folder(dict.fromkeys("edcba", 5)), halves=True), fixed=True)
    assert data.base is not None
    assert data.new is not None
    assert data.train.classes == data.base.classes == ("a", "b", "c")
    assert data.new.classes == ("d", "e")
    assert paths(data.own) == paths(data.base)
    assert labels_fit(data.new)
    assert len(data.new.images) == 2


def test_class_blocks_share_out_the_base_half(make_folder: MakeFolder) -> None:
    root = make_folder(dict.fromkeys("abcdefghi", 5))
    nodes = [load(settings(root, halves=True, partition=part("classes", i, 2))) for i in (0, 1)]
    assert [node.train.classes for node in nodes] == [("a", "b"), ("c", "d", "e")]
    assert nodes[0].base == nodes[1].base
    assert nodes[0].new == nodes[1].new
    assert all(labels_fit(node.train) for node in nodes)


def test_a_node_opens_only_its_own_block(make_folder: MakeFolder) -> None:
    root = make_folder({"a": 5, "b": 5, "c": 5, "d": 5})
    (root / "d" / "000.png").write_bytes(b"damaged")
    first = load(settings(root, partition=part("classes", 0, 2)))
    second = load(settings(root, partition=part("classes", 1, 2)))
    assert first.skipped == ()
    assert [path.name for path, _ in second.skipped] == ["000.png"]


def test_dirichlet_shares_are_disjoint_and_complete(make_folder: MakeFolder) -> None:
    root = make_folder({"a": 10, "b": 10, "c": 10})
    nodes = [
        load(settings(root, shots=0, partition=part("dirichlet", i, 3, 0.5))) for i in range(3)
    ]
    together = [image.path for node in nodes for image in node.train.images]
    tested = {image.path for node in nodes for image in node.own.images}
    assert len(together) == len(set(together)) == 30 - len(tested)
    assert all(node.own.classes == node.train.classes for node in nodes)
    assert all(labels_fit(node.train) and labels_fit(node.own) for node in nodes)


def test_test_images_are_the_same_for_every_seed(make_folder: MakeFolder) -> None:
    root = make_folder({"a": 20, "b": 20})
    one, two = load(settings(root, seed=1)), load(settings(root, seed=2))
    assert one.own == two.own
    assert one.train != two.train
    assert one == load(settings(root, seed=1))


def test_relative_path_becomes_absolute(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder({"a": 5, "b": 5})
    monkeypatch.chdir(root.parent)
    assert load(settings(Path("images"))) == load(settings(root))


def test_unreadable_files_are_skipped_with_a_reason(make_folder: MakeFolder) -> None:
    root = make_folder({"a": 6, "b": 6})
    (root / "a" / "000.png").write_bytes(b"damaged")
    (root / "b" / "notes.txt").touch()
    (root / "b" / "more").mkdir()
    (root / "list.txt").touch()
    data = load(settings(root, shots=0, test=0.0))
    assert {path.name for path, _ in data.skipped} == {"000.png", "notes.txt", "more", "list.txt"}
    assert len(data.train.images) == 11
    problems = look(settings(root, shots=0))[0]
    assert len(problems) == 4
    assert all(kind == "note" for kind, _ in problems)
    assert {text.partition(": '")[0] for _, text in problems} == {
        "Skipped 1 file (no image of a known format)",
        "Skipped 1 file (not an image by its suffix)",
        "Skipped 1 file (a folder inside a class folder, not searched)",
        "Skipped 1 file (lies beside the class folders, in none of them)",
    }
    assert any(f"'{root / 'a' / '000.png'}'." in str(problem) for problem in problems)


def test_images_of_one_colour_and_several_frames_are_counted_and_named(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder({"a": 6, "b": 6})
    odd = {
        root / "a" / "000.png": Verdict(constant=True, digest="0"),
        root / "b" / "003.png": Verdict(frames=30, digest="1"),
    }
    monkeypatch.setattr(
        module,
        "examine",
        lambda paths, *_: {path: Verdict(digest=path.name) for path in paths} | odd,
    )
    assert load(settings(root, shots=0)).notes[:2] == (
        f"DICOM files with several frames: 1, such as '{root}/b/003.png' (30 frames). The middle "
        "frame of each is used.",
        "Images of one colour throughout, in which the model sees nothing: 1, such as "
        f"'{root}/a/000.png'. data.window sets which values of a grey image become black and "
        "white.",
    )


def test_a_second_node_decodes_nothing(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder({"a": 6, "b": 6})
    (root / "a" / "000.png").write_bytes(b"damaged")
    cache = FeatureCache(tmp_path / "cache", 10_000_000)
    first = load(settings(root), cache)
    monkeypatch.setattr(images, "decode", None)
    assert load(settings(root), cache) == first


def test_fewer_images_than_shots_are_all_used_and_noted(make_folder: MakeFolder) -> None:
    data = load(settings(make_folder({"a": 4, "b": 20})))
    assert len(data.train.images) == 3 + 4
    assert data.notes == (
        "1 of 2 classes has fewer than 4 training images (the fewest: 3, first such class: 'a'); "
        "all of them are used.",
        "This node uses 7 of 19 training images: data.shots is 4; 0 takes all.",
    )


def test_a_node_with_one_class_is_told_so(make_folder: MakeFolder) -> None:
    data = load(settings(make_folder({"a": 9, "b": 9}), partition=part("classes", 0, 2)))
    assert data.notes[0].startswith("This node's only class is 'a'")


def fault(values: DataSettings) -> str:
    """Return the sentence that load raises, which check must list as fatal too."""
    with pytest.raises(DataError) as caught:
        load(values)
    listed = [text for kind, text in look(values)[0] if kind == "fault"]
    assert str(caught.value).startswith(listed[0])
    return str(caught.value)


FAULTS: list[tuple[dict[str, int], dict[str, Any], str]] = [
    ({"a": 5, "b": 0}, {}, "The class folder '{root}/b' holds no image: add"),
    ({"a": 5, "b/inner": 0}, {}, "b' holds no image, only folders"),
    ({"a": 0, "b/inner": 0}, {}, "a' holds no image: add"),
    ({"a": 5, "b": 0, "c": 0}, {}, "(1 more fault: `fednode check` lists all.)"),
    ({"a": 5, "b": 1}, {}, "holds 1 readable image; a test split needs at least 2"),
    ({"grand_piano": 2, "ant": 2}, {"classes": ("ant", "Grand Piano")}, "nearest is 'grand_piano'"),
    ({"grand_piano": 2, "ant": 2}, {"classes": ("ant", "xyz")}, "there are ant, grand_piano ..."),
    ({"lesions": 2, "mole": 2}, {"rename": {"lesion": "x"}}, "names 'lesion', which is no class"),
    (
        {"lesions": 2, "mole": 2}, {"rename": {"lesions": "mole"}},
        "gives the classes 'lesions' and 'mole' the same name 'mole': put",
    ),
    ({"lesions": 2, "mole": 2}, {"rename": {"mole": " "}}, "gives the class 'mole' an empty name."),
    ({"a": 2, "b": 2}, {"classes": ("a", "a", "b")}, "names 'a' more than once"),
    ({"a": 2, "b": 2}, {"classes": ()}, "gives 0 class"),
    ({"a": 2, "b": 2}, {"classes": ("a",)}, "gives 1 class to tell apart (a)"),
    (
        {"a": 5, "b": 5}, {"partition": PartitionSettings("classes")},
        'data.partition.how is "classes" but index and count are not set',
    ),
    ({"a": 5, "b": 5}, {"partition": part("classes", 0, 3)}, "but there are only 2 classes"),
    ({"a": 2, "b": 2}, {"partition": part("dirichlet", 0, 3)}, "are only 2 training images"),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "changes", "sentence"), FAULTS)
def test_each_fault_is_a_sentence(
    make_folder: MakeFolder, counts: dict[str, int], changes: dict[str, Any], sentence: str
) -> None:
    root = make_folder(counts)
    assert sentence.replace("{root}", str(root)) in fault(settings(root, **changes))


def test_an_empty_class_may_be_left_out_and_one_image_trains_without_a_test(
    make_folder: MakeFolder,
) -> None:
    root = make_folder({"a": 5, "b": 0, "c": 1})
    values = settings(root, classes=("c", "a"), test=0.0)
    assert load(values).train.classes == ("a", "c")
    assert len(load(values).train.images) == 5


def test_class_without_readable_image_is_named(make_folder: MakeFolder) -> None:
    root = make_folder({"a": 5, "b": 1})
    (root / "b" / "000.png").write_bytes(b"damaged")
    assert (
        "holds no readable image: all 1 were skipped, such as '000.png' (no image of a known "
        "format)." in fault(settings(root))
    )
    assert any("Skipped 1 file" in text for _, text in look(settings(root))[0])


def test_classes_are_renamed_and_their_draws_stay(make_folder: MakeFolder) -> None:
    root = make_folder({"lesion_type_1": 6, "mole": 6})
    data = load(settings(root, rename={"lesion_type_1": "big_lesion"}))
    assert data.train.classes == data.own.classes == ("big lesion", "mole")
    assert data.train.images == load(settings(root)).train.images


def test_missing_and_blank_paths_are_refused(tmp_path: Path) -> None:
    assert "does not exist: check data.path" in fault(settings(tmp_path / "none"))
    (tmp_path / "file").touch()
    assert "is a file, not a folder" in fault(settings(tmp_path / "file"))
    assert 'give a folder of class folders, or "builtin"' in fault(DataSettings(path=" "))


def test_built_in_images_load_whole() -> None:
    values = DataSettings(halves=True, partition=part("classes", 4, 5))
    data = load(values)
    assert data.base is not None
    assert data.new is not None
    assert (len(data.train.classes), len(data.base.classes), len(data.new.classes)) == (5, 25, 25)
    assert len(data.train.images) == 40
    unused = "This node uses 40 of 95 training images: data.shots is 8; 0 takes all."
    assert (data.skipped, data.notes, data.warnings) == ((), (unused,), ())
    assert look(values)[0] == [("note", unused)]


def test_loading_imports_no_torch() -> None:
    code = "import sys, fednode.data.load; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
