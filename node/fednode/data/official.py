"""Read data sets with a published split: which images train, validate and test, and class labels.

    root/split_zhou_<name>.json                     CoOp's splits; images lie where CoOp puts them
    root/variants.txt, images_variant_<part>.txt    FGVC Aircraft; root/images
    root/classnames.txt, images/{train,val}         ImageNet
    root/{train,val,test}/<class>/<image>           any data set; FOLDERS lists the names
    ../<root>_{train,test}.txt, or in ../splits     DomainNet's lists, beside its domains

Classes are ordered by label, so the halves and blocks of classes are those of the publications. A
file that a split names and that is not there is skipped, and named. The layouts are facts of CoOp's
DATASETS.md and of the data sets' publishers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from fednode.data.files import is_utf8, read_list, spelled
from fednode.data.folder import (
    LISTS,
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
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "crossval": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
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

VLCS: Final = ("bird", "car", "chair", "dog", "person")
"""Classes of VLCS, whose folders are called 0 to 4."""
VLCS_DOMAINS: Final = frozenset({"caltech", "labelme", "pascal", "sun"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a split: an image, by its path below the image folder, and its class."""

    part: Part
    file: str
    label: int
    name: str


def found_in(root: Path, nested: bool = False) -> Found:
    """List a data folder by its published split, or else as a folder of class folders.

    nested: images may lie in folders inside the class folders.
    Raise DataError if it is neither, or if a split cannot be read.
    """
    require_text(root, "data folder")
    files = root.glob("split_zhou_*.json") if root.is_dir() else ()
    splits = sorted(file for file in files if file.is_file())
    if len(splits) > 1:
        raise DataError(
            f"'{root}' holds {len(splits)} split files, '{splits[0].name}' and "
            f"'{splits[1].name}': keep the one of this data set."
        )
    if splits:
        base = root / COOP.get(splits[0].stem.removeprefix("split_zhou_"), "")
        return _listed(root, base, splits, list(_json(splits[0])))
    lists = [root / f"images_variant_{part}.txt" for part in PARTS]
    if (root / "variants.txt").is_file() and lists[0].is_file():
        return _listed(root, root / "images", lists, list(_aircraft(root, lists)))
    if (root / "classnames.txt").is_file() and (root / "images" / "train").is_dir():
        return _parted(root, root / "images", _class_names(root / "classnames.txt"), nested)
    if _has_parts(root):
        return _parted(root, root, _vlcs_names(root), nested)
    for folder in (root.parent, root.parent / LISTS):
        lists = [folder / f"{root.name}_{part}.txt" for part in ("train", "test")]
        if all(path.is_file() for path in lists) and _lists_domain(root.name, lists[0]):
            return _listed(root, root.parent, lists, list(_domain_net(lists)))
    return scan(root, nested)


def _json(path: Path) -> Iterator[Entry]:
    """Yield the images of {part: [[file, label, class], ...]}."""
    try:
        held = json.loads(read_list(path))
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"The split file '{path}' cannot be read: {fault}.") from None
    if not isinstance(held, dict) or not isinstance(held.get("train"), list):
        raise DataError(
            f"The split file '{path}' has no list `train`: it must hold the lists `train`, `val` "
            "and `test` of [file, label, class name]."
        )
    for part in PARTS:
        rows = held.get(part, [])
        for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
            yield _row(path, part, number, row)


def _row(path: Path, part: Part, number: int, row: Any) -> Entry:
    fits = isinstance(row, list) and len(row) == 3
    if not fits or not isinstance(row[0], str) or not isinstance(row[2], str) or not row[2].strip():
        raise DataError(
            f"'{path}' has {str(row)[:80]!r} as entry {number} of `{part}`; an entry is [file, "
            "label, class name]."
        )
    if not is_utf8(row[0] + row[2]):
        raise DataError(
            f"'{path}' has characters in entry {number} of `{part}` that no text may hold: "
            f"{ascii(row)[:80]}."
        )
    return Entry(part, row[0], _label(path, f"entry {number} of `{part}`", row[1]), row[2])


def _aircraft(root: Path, lists: Iterable[Path]) -> Iterator[Entry]:
    """Yield the images of lines "number variant"; a variant's label is its line's number."""
    labels = {name: at for at, name in enumerate(_lines(root / "variants.txt"))}
    for part, path in zip(PARTS, lists, strict=True):
        for line in _lines(path):
            image, _, variant = line.partition(" ")
            if variant not in labels:
                raise DataError(
                    f"'{path}' has the line {line[:80]!r}, whose variant is not in variants.txt."
                )
            yield Entry(part, f"{image}.jpg", labels[variant], variant)


def _lists_domain(name: str, path: Path) -> bool:
    """Tell whether a list's first line names a file of the domain, as DomainNet's lists do."""
    return next(iter(_lines(path)), "").startswith(f"{name}/")


def _domain_net(lists: Iterable[Path]) -> Iterator[Entry]:
    """Yield the images of lines "domain/class/file label"."""
    parts: tuple[Part, ...] = ("train", "test")
    for part, path in zip(parts, lists, strict=True):
        for line in _lines(path):
            file, _, label = line.rpartition(" ")
            folders = PurePosixPath(file).parts
            if len(folders) != 3:
                raise DataError(
                    f"'{path}' has the line {line[:80]!r}; a line is domain/class/file and a label."
                )
            yield Entry(part, file, _label(path, f"the line {line[:80]!r}", label), folders[1])


def _class_names(path: Path) -> dict[str, str]:
    """Return ImageNet's class names by folder, from lines "folder name"."""
    return {folder: name for folder, _, name in (line.partition(" ") for line in _lines(path))}


def _lines(path: Path) -> list[str]:
    try:
        lines = read_list(path).splitlines()
    except (OSError, ValueError) as fault:
        raise DataError(f"The list '{path}' cannot be read: {fault}.") from None
    return [line.strip() for line in lines if line.strip()]


def _label(path: Path, where: str, written: Any) -> int:
    try:
        label = int(written)
    except (TypeError, ValueError):
        label = -1
    if label < 0:
        raise DataError(f"'{path}' has the label {written!r} in {where}; labels count from 0.")
    return label


def _listed(root: Path, base: Path, lists: list[Path], listed: list[Entry]) -> Found:
    """Return the classes of a split's entries, by label."""
    source = lists[0]
    names = _named(source, listed)
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
    watched = (*lists, *sorted(folders))
    return Found(root, classes, (), source.name, watched=watched)


def _named(source: Path, listed: Iterable[Entry]) -> dict[int, str]:
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
    return ("train" in parts.values() and len(set(parts.values())) > 1) and all(
        _holds_folders(path) for path in parts
    )


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
    if not path.is_dir():
        return False
    folders, files = entries(path, "folder")
    return bool(folders) and not any(map(is_image, files))


def _vlcs_names(root: Path) -> dict[str, str] | None:
    """Return the names of VLCS's numbered folders; None if root is no domain of VLCS."""
    training = next(iter(_parts(root)))
    names = {path.name for path in entries(training, "folder")[0]}
    numbered = {str(label): name for label, name in enumerate(VLCS)}
    return numbered if root.name.lower() in VLCS_DOMAINS and names <= numbered.keys() else None


def _parted(root: Path, base: Path, texts: Mapping[str, str] | None, nested: bool) -> Found:
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
            of_class = class_folder(folder, nested)
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
