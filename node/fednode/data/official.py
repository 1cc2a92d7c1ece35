"""Read data sets with a published split: which images train, validate and test, and class labels.

    root/split_zhou_<name>.json               CoOp's splits; images lie where CoOp puts them
    root/classnames.txt, images/{train,val}   ImageNet
    root/{train,val,test}/<class>/<image>     any data set; FOLDERS lists the names

`python -m tools.splits` writes other publishers' lists as such a JSON file. Classes are ordered by
label, so the halves and blocks of classes are those of the publications. A file that a split names
and that is not there is skipped, and named. The layouts are facts of CoOp's DATASETS.md and of the
data sets' publishers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple

from fednode.data.files import is_utf8, read_list, spelled
from fednode.data.folder import (
    ClassFolder,
    Found,
    class_folder,
    entries,
    require_text,
    scan,
    sort_key,
)
from fednode.data.formats import is_image
from fednode.data.names import refuse_twins
from fednode.errors import DataError

Part = Literal["train", "val", "test"]
PARTS: Final[tuple[Part, ...]] = ("train", "val", "test")
FOLDERS: Final[Mapping[str, Part]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "crossval", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The folders of a split, by their names in small letters; they may be written in any case."""

COOP: Final = {
    "Caltech101": "101_ObjectCategories",
    "DescribableTextures": "images",
    "EuroSAT": "2750",
    "Food101": "images",
    "OxfordFlowers": "jpg",
    "OxfordPets": "images",
    "SUN397": "SUN397",
    "UCF101": "UCF-101-midframes",
}
"""The image folder of each of CoOp's split files; other files name images beside themselves."""
PREFIX: Final = "split_zhou_"
VLCS_DOMAINS: Final = frozenset({"caltech", "labelme", "pascal", "sun"})
"""Folders of VLCS, whose class folders are called 0 to 4 as published."""


class Entry(NamedTuple):
    """One line of a split: an image, by its path below the image folder, and its class."""

    part: Part
    file: str
    label: int
    name: str


def found_in(root: Path, nested: bool = False) -> Found:
    """List a data folder by its published split, or else as a folder of class folders.

    nested: without a published split, images may lie in folders inside the class folders.
    Raise DataError if it is neither, or if a split cannot be read.
    """
    require_text(root, "data folder")
    splits = sorted(file for file in root.glob(f"{PREFIX}*.json") if file.is_file())
    if len(splits) > 1:
        raise DataError(
            f"'{root}' holds {len(splits)} split files, '{splits[0].name}' and "
            f"'{splits[1].name}': keep the one of this data set."
        )
    if splits:
        base = root / COOP.get(splits[0].stem.removeprefix(PREFIX), "")
        return _listed(root, base, splits[0])
    names = root / "classnames.txt"
    if names.is_file() and (root / "images" / "train").is_dir():
        return _parted(root, root / "images", _class_names(names))
    if unread := _unconverted(root):
        raise DataError(
            f"'{unread}' belongs to a published split that has not been converted: run `python -m "
            "tools.splits` (docs/data.md), or move it away."
        )
    if _has_parts(root):
        return _parted(root, root, None)
    return scan(root, nested)


def _unconverted(root: Path) -> Path | None:
    """Return what tells that root is a data set of tools/splits.py; None if nothing does."""
    if (aircraft := root / "images_variant_train.txt").is_file():
        return aircraft
    for folder in (root.parent, root.parent / "splits"):
        train, test = (folder / f"{root.name}_{part}.txt" for part in ("train", "test"))
        if train.is_file() and test.is_file():
            with train.open("rb") as file:
                begin = f"{root.name}/".encode()
                if file.read(len(begin)) == begin:
                    return train
    for path in _parts(root) if root.name.lower() in VLCS_DOMAINS else ():
        names = {folder.name for folder in entries(path, "folder")[0]}
        if names and names <= {*"01234"}:
            return path
    return None


def _listed(root: Path, base: Path, source: Path) -> Found:
    """Return the classes of a split file's entries, by label."""
    listed = _read_entries(source)
    names = _names(source, listed)
    parts: dict[int, dict[Part, list[Path]]] = {
        label: {part: [] for part in PARTS} for label in sorted(names)
    }
    absent: dict[int, list[tuple[Path, str]]] = {label: [] for label in names}
    for entry in sorted(set(listed), key=lambda entry: sort_key(entry.file)):
        inner = PurePosixPath(entry.file)
        if inner.is_absolute() or ".." in inner.parts:
            raise DataError(f"'{source}' names '{entry.file}', which lies outside '{base}'.")
        path = base / inner
        if path.is_file():
            parts[entry.label][entry.part].append(path)
        else:
            absent[entry.label].append((path, f"named by '{source.name}', and not there"))
    if not any(files for part in parts.values() for files in part.values()):
        if listed and all("\\" in entry.file for entry in listed):
            raise DataError(
                f"'{source}' writes paths with backslashes, such as '{listed[0].file}': write them "
                "with '/'."
            )
        raise DataError(
            f"'{source}' names {len(listed)} images, and none of them lies in '{base}': put the "
            "data set's images there (docs/data.md lists the folders)."
        )
    classes = tuple(
        _class(names[label], base, source.name, files, absent[label])
        for label, files in parts.items()
    )
    refuse_twins(f"'{source}'", [(of_class.name, of_class.display) for of_class in classes])
    folders = {path.parent for of_class in classes for path in of_class.every}
    return Found(root, classes, (), source.name, watched=(source, *sorted(folders)))


def _read_entries(path: Path) -> list[Entry]:
    """Return the images of {part: [[file, label, class], ...]}."""
    try:
        held = json.loads(read_list(path))
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"The split file '{path}' cannot be read: {fault}.") from None
    if not isinstance(held, dict) or not isinstance(held.get("train"), list):
        raise DataError(
            f"The split file '{path}' has no list `train`: it must hold the lists `train`, `val` "
            "and `test` of [file, label, class name]."
        )
    rows = {part: held.get(part, []) for part in PARTS}
    return [
        _entry(path, part, number, row)
        for part, of_part in rows.items()
        for number, row in enumerate(of_part if isinstance(of_part, list) else [of_part])
    ]


def _entry(path: Path, part: Part, number: int, row: Any) -> Entry:
    where = f"entry {number} of `{part}`"
    match row:
        case [str(file), written, str(name)] if name.strip():
            pass
        case _:
            raise DataError(
                f"'{path}' has {str(row)[:80]!r} as {where}; an entry is [file, label, class name]."
            )
    if not is_utf8(file + name):
        raise DataError(
            f"'{path}' has characters in {where} that no text may hold: {ascii(row)[:80]}."
        )
    try:
        label = int(written)
    except (TypeError, ValueError, OverflowError):
        label = -1
    if label < 0:
        raise DataError(f"'{path}' has the label {written!r} in {where}; labels count from 0.")
    return Entry(part, file, label, name)


def _names(source: Path, listed: Iterable[Entry]) -> dict[int, str]:
    """Return the class of each label."""
    names: dict[int, str] = {}
    labels: dict[str, int] = {}
    for entry in listed:
        if names.setdefault(entry.label, entry.name) != entry.name:
            raise DataError(
                f"'{source}' gives the label {entry.label} to the classes '{names[entry.label]}' "
                f"and '{entry.name}': each class needs a label of its own."
            )
        if labels.setdefault(entry.name, entry.label) != entry.label:
            raise DataError(
                f"'{source}' gives the class '{entry.name}' the labels {labels[entry.name]} and "
                f"{entry.label}: each class needs one label."
            )
    return names


def _class_names(path: Path) -> dict[str, str]:
    """Return ImageNet's class names by folder, from lines "folder name"."""
    try:
        lines = map(str.strip, read_list(path).splitlines())
    except (OSError, ValueError) as fault:
        raise DataError(f"The list '{path}' cannot be read: {fault}.") from None
    return {folder: name for folder, _, name in (line.partition(" ") for line in lines if line)}


def _class(
    name: str,
    path: Path,
    source: str,
    parts: Mapping[Part, Iterable[Path]],
    others: Iterable[tuple[Path, str]],
    text: str = "",
) -> ClassFolder:
    """Return a class; an image that is listed twice is tested, or else validates."""
    test = tuple(dict.fromkeys(parts["test"]))
    validation = tuple(file for file in dict.fromkeys(parts["val"]) if file not in set(test))
    kept = {*test, *validation}
    train = tuple(file for file in dict.fromkeys(parts["train"]) if file not in kept)
    return ClassFolder(
        name=name,
        path=path,
        files=train,
        others=tuple(others),
        validation=validation,
        test=test,
        text=text,
        source=source,
    )


def _has_parts(root: Path) -> bool:
    """Tell whether root holds training images and others, in folders that hold folders alone."""
    parts = _parts(root)
    several = "train" in parts.values() and len(set(parts.values())) > 1
    return several and all(map(_holds_folders, parts))


def _parts(base: Path) -> dict[Path, Part]:
    """Return the folders of base that are parts of a split, the training images first."""
    if not base.is_dir():
        return {}
    parts = {
        path: FOLDERS[path.name.lower()]
        for path in entries(base, "folder")[0]
        if path.name.lower() in FOLDERS
    }
    return dict(sorted(parts.items(), key=lambda part: PARTS.index(part[1])))


def _holds_folders(path: Path) -> bool:
    folders, files = entries(path, "folder")
    return bool(folders) and not any(map(is_image, files))


def _parted(root: Path, base: Path, texts: Mapping[str, str] | None) -> Found:
    """Return the classes of base/<part>/<class>; without test images, those of `val` are for tests.

    texts: names in prompts, by class folder; None: the folders' names.
    """
    places = _parts(base)
    tested = "test" in places.values()
    training = next(iter(places))
    source = f"{base.name}/{training.name}"
    parts: dict[str, dict[Part, list[Path]]] = {}
    others: dict[str, list[tuple[Path, str]]] = {}
    for place, part in places.items():
        meant = part if tested or part == "train" else "test"
        for folder in entries(place, "folder")[0]:
            of_class = class_folder(folder)
            held = parts.setdefault(of_class.name, {part: [] for part in PARTS})
            held[meant] += of_class.files
            others.setdefault(of_class.name, []).extend(of_class.others)
    unnamed = sorted(parts.keys() - texts.keys()) if texts is not None else []
    if unnamed:
        raise DataError(
            f"'{root / 'classnames.txt'}' has no name for the class folder '{unnamed[0]}'."
        )
    classes = tuple(
        _class(
            name, training / name, source, parts[name], others[name], (texts or {}).get(name, "")
        )
        for name in sorted(parts, key=sort_key)
    )
    if texts is None:
        refuse_twins(f"'{base}'", [(of_class.name, of_class.display) for of_class in classes])
    watched = [folder for place in places for folder in entries(place, "folder")[0]]
    folders, beside = entries(base, "folder")
    beside += [path for place in places for path in entries(place, "folder")[1]]
    beside += [path for path in folders if path not in places]
    shown = ", ".join(place.name for place in places)
    strays = tuple(
        (spelled(path), f"lies beside the images of {shown}: not used") for path in beside
    )
    return Found(root, classes, strays, source, watched=(*places, *watched))
