"""Read data sets with a published split: which images train, validate and test, and class labels.

    root/split_zhou_<name>.json               CoOp's splits; images lie where CoOp puts them
    root/{train,val,test}/<class>/<image>     any data set; names.PARTS lists the names

`python -m tools.splits` writes other publishers' lists as such a JSON file. Classes are ordered by
label, so the halves and blocks of classes are those of the publications. A file that a split names
and that is not there is skipped, and named. The layouts are facts of CoOp's DATASETS.md.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from fednode.data.decode import is_image
from fednode.data.files import is_utf8, read_list, spelled
from fednode.data.folder import (
    ClassImages,
    Listing,
    class_folder,
    entries,
    require_text,
    scan,
    sort_key,
)
from fednode.data.names import PARTS, Part, refuse_twins
from fednode.errors import DataError

ORDER: Final[tuple[Part, ...]] = ("train", "val", "test")
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
LISTS: Final = "splits"
"""A folder beside domains that may hold DomainNet's lists."""


class Entry(NamedTuple):
    """One line of a split: an image, by its path from the image folder, and its class."""

    part: Part
    file: PurePosixPath
    label: int
    name: str


def read_folder(root: Path, nested: bool = False) -> Listing:
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
        return _listed(root, splits[0])
    _refuse_lists(root)
    places = _parts(root)
    return _parted(root, places) if places else scan(root, nested)


def _refuse_lists(root: Path) -> None:
    """Raise DataError if DomainNet's lists, beside a folder, publish which of its images test."""
    for folder in (root.parent, root.parent / LISTS):
        path = folder / f"{root.name}_train.txt"
        with contextlib.suppress(OSError, ValueError):
            if read_list(path).startswith(f"{root.name}/"):
                raise DataError(
                    f"'{path}' lists the images of '{root}' that train, and fednode does not read "
                    "such lists: run `python -m tools.splits domainnet "
                    f"{root.parent}` in a checkout of fednode, which writes a split file."
                )


def _listed(root: Path, source: Path) -> Listing:
    """Return the classes of a split file's entries, by label.

    An image that is listed twice is tested, or else validates.
    """
    base = root / COOP.get(source.stem.removeprefix(PREFIX), "")
    listed = list(_read_entries(source))
    classes, labels = dict[int, ClassImages](), dict[str, int]()
    parts = dict[tuple[Path, int], Part]()
    for part, file, label, name in listed:
        one = classes.setdefault(label, ClassImages(name=name, path=base, source=source.name))
        first = labels.setdefault(name, label)
        if (one.name, first) != (name, label):
            raise DataError(
                f"'{source}' gives the class '{one.name}' the label {first}, and the class "
                f"'{name}' the label {label}: each class needs one label of its own."
            )
        parts[base / file, label] = part
    for (path, label), part in sorted(parts.items(), key=lambda image: sort_key(str(image[0][0]))):
        if path.is_file():
            classes[label].images[path] = part
        else:
            classes[label].others.append((path, f"named by '{source.name}', and not there"))
    if not any(one.images for one in classes.values()):
        if listed and all("\\" in str(entry.file) for entry in listed):
            raise DataError(
                f"'{source}' writes paths with backslashes, such as '{listed[0].file}': write them "
                "with '/'."
            )
        raise DataError(
            f"'{source}' names {len(listed)} images, and none of them lies in '{base}': put the "
            "data set's images there (docs/data.md lists the folders)."
        )
    return _published(root, source.name, [classes[label] for label in sorted(classes)])


def _published(
    root: Path, source: str, classes: Sequence[ClassImages], strays: Sequence[tuple[Path, str]] = ()
) -> Listing:
    """Return the listing of a published split; raise DataError if two names are one for a model."""
    refuse_twins(f"'{root}'", [(one.name, one.display) for one in classes])
    return Listing(root, classes, strays, source)


def _read_entries(path: Path) -> Iterator[Entry]:
    """Yield the images of {part: [[file, label, class], ...]}, those of `test` last."""
    try:
        held = json.loads(read_list(path))
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"The split file '{path}' cannot be read: {fault}.") from None
    if not isinstance(held, dict) or not isinstance(held.get("train"), list):
        raise DataError(
            f"The split file '{path}' has no list `train`: it must hold the lists `train`, `val` "
            "and `test` of [file, label, class name]."
        )
    for part in ORDER:
        rows = held.get(part, [])
        for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
            match row:
                case [str(file), int(label), str(name)] if label >= 0 and name.strip():
                    inner = PurePosixPath(file)
                    if inner.is_absolute() or ".." in inner.parts:
                        raise DataError(
                            f"'{path}' names '{inner}', which lies outside '{path.parent}'."
                        )
                    if is_utf8(file + name):
                        yield Entry(part, inner, label, name)
                        continue
            raise DataError(
                f"'{path}' has {ascii(row)[:80]} as entry {number} of `{part}`; an entry is [file, "
                "label, class name] in UTF-8, and labels count from 0."
            )


def _parts(root: Path) -> dict[Path, Part]:
    """Return the parts of a split, the training images first; nothing if root holds no split.

    A split has training images and others, in folders that hold class folders alone.
    """
    places = entries(root, "folder")[0] if root.is_dir() else []
    parts = {path: PARTS[name] for path in places if (name := path.name.lower()) in PARTS}
    several = "train" in parts.values() and len(set(parts.values())) > 1
    if not several or not all(map(_holds_folders, parts)):
        return {}
    return dict(sorted(parts.items(), key=lambda part: ORDER.index(part[1])))


def _holds_folders(path: Path) -> bool:
    folders, files = entries(path, "folder")
    return bool(folders) and not any(map(is_image, files))


def _parted(root: Path, places: Mapping[Path, Part]) -> Listing:
    """Return the classes of place/<class>; without test images, those of `val` are for tests."""
    tested, training = "test" in places.values(), next(iter(places))
    source = f"{root.name}/{training.name}"
    classes = dict[str, ClassImages]()
    folders, beside = entries(root, "folder")
    beside += [path for path in folders if path not in places]
    for place, part in places.items():
        inner, files = entries(place, "folder")
        beside += files
        for folder in map(class_folder, inner):
            new = ClassImages(name=folder.name, path=training, source=source)
            one = classes.setdefault(folder.name, new)
            one.images |= dict.fromkeys(
                folder.images, part if tested or part == "train" else "test"
            )
            one.others += folder.others
    shown = ", ".join(place.name for place in places)
    strays = [(spelled(path), f"lies beside the images of {shown}: not used") for path in beside]
    return _published(
        root, source, [classes[name] for name in sorted(classes, key=sort_key)], strays
    )
