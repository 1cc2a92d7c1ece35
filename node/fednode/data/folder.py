"""Find the classes and image files of a folder that holds one folder per class.

    root/<class>/<image>            read
    root/<domain>/<class>/<image>   refused: data.path must name one domain

Folders with a published split, such as CoOp's, are read by official.py.

Names are compared in Unicode's composed form and sorted by code point, so that classes and files
have the same order on every file system. Links are followed, but only two levels are listed, so a
link to a parent folder cannot cause an endless walk.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fednode.data.decode import SUFFIXES, is_image
from fednode.data.files import is_utf8, spelled, why
from fednode.data.names import Part, for_layout, refuse_twins, shown
from fednode.errors import DataError
from fednode.units import listed

LITTER: Final = frozenset(
    {
        *("__MACOSX", "DICOMDIR", "Thumbs.db", "desktop.ini", "@eaDir", "#recycle", "#snapshot"),
        *("$RECYCLE.BIN", "System Volume Information", "lost+found"),
    }
)
"""What operating systems leave behind; ignored like hidden files."""

NAMED: Final = 4
"""Most folders, or kinds of files, that a sentence names."""


@dataclass(slots=True, kw_only=True)
class ClassImages:
    """One class: its image files (judged by suffix) and the other entries of its folder.

    Attributes:
        name: the folder's name, or the name that a published split or a table gives
        path: the class's folder, or the folder of all images
        images: the image files, and the part of each in a published split; without one, all train
        others: entries that are not used, and why
        text: the name in a prompt if it differs from `name`
        source: the published split or the table that gives the images; "" for a folder
    """

    name: str
    path: Path
    images: dict[Path, Part] = field(default_factory=dict)
    others: list[tuple[Path, str]] = field(default_factory=list)
    text: str = ""
    source: str = ""

    @property
    def title(self) -> str:
        """What a sentence on the class begins with."""
        if self.source:
            return f"The class '{self.name}' of '{self.source}'"
        return f"The class folder '{self.path}'"

    @property
    def display(self) -> str:
        """The class's name as it stands in a prompt."""
        return shown(self.text or self.name)

    def of(self, part: Part) -> tuple[Path, ...]:
        """Return the images of a part."""
        return tuple(path for path, of in self.images.items() if of == part)


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a data folder.

    Attributes:
        classes: sorted by name, or by label if a published split gives labels
        strays: files outside class folders, and why they are not used
        source: the file or folder that publishes the split; "" if nothing is published
        notes: sentences on the table that gives the classes
    """

    root: Path
    classes: Sequence[ClassImages]
    strays: Sequence[tuple[Path, str]] = ()
    source: str = ""
    notes: Sequence[str] = ()


def sort_key(name: str) -> tuple[str, str]:
    """Return the key by which names are sorted: the composed form first, then the name itself."""
    return unicodedata.normalize("NFC", name), name


def scan(root: Path, nested: bool = False) -> Listing:
    """List a folder of class folders; raise DataError if it is not such a folder.

    nested: images may lie in folders inside the class folders.
    """
    folders, files = entries(root, "data folder")
    strays = [(spelled(path), "lies beside the class folders, in none of them") for path in files]
    if not folders:
        if any(map(is_image, files)):
            raise DataError(
                f"'{root}' holds images but no class folders: put the images of each class into "
                "a folder that bears the name of the class, or name a table of their classes in "
                "data.table."
            )
        raise DataError(
            f"The data folder '{root}' is empty: it must hold one folder per class, with the "
            "images of that class in it."
        )
    classes = [class_folder(path, nested) for path in folders]
    if not nested:
        _refuse_domains(root, classes)
    refuse_twins(f"'{root}'", [(folder.path.name, folder.display) for folder in classes])
    return Listing(root, classes, strays)


def entries(folder: Path, what: str) -> tuple[list[Path], list[Path]]:
    """Return the subfolders and files of a folder, sorted, without hidden entries.

    Raise DataError if it cannot be listed, or if its name is not UTF-8.
    """
    require_text(folder, what)
    folders, files = list[Path](), list[Path]()
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                if not is_litter(entry.name):
                    (folders if _is_folder(entry) else files).append(folder / entry.name)
    except FileNotFoundError:
        raise DataError(f"The {what} '{folder}' does not exist: check data.path.") from None
    except NotADirectoryError:
        raise DataError(f"The {what} '{folder}' is a file, not a folder.") from None
    except OSError as error:
        raise DataError(f"The {what} '{folder}' cannot be read: {why(error)}.") from None
    for paths in (folders, files):
        paths.sort(key=lambda path: sort_key(path.name))
    return folders, files


def is_litter(name: str) -> bool:
    """Tell whether an entry of a folder is hidden, or left behind by an operating system."""
    return name.startswith(".") or name in LITTER


def require_text(folder: Path, what: str) -> None:
    """Raise DataError if the name of a folder is not UTF-8, so that it cannot be written."""
    if not is_utf8(str(folder)):
        raise DataError(f"The {what} '{spelled(folder)}' has a name that is not UTF-8: rename it.")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link to itself counts as a file, and is then reported as unreadable.
        return False


def class_folder(path: Path, nested: bool = False) -> ClassImages:
    """Return the class whose images lie in a folder; nested: and in the folders inside it."""
    folders, files = entries(path, "class folder")
    if nested:
        folders, files = [], walk(path)
    found = ClassImages(name=unicodedata.normalize("NFC", path.name), path=path)
    for file in files:
        if not is_utf8(file.name):
            found.others.append((spelled(file), "a name that is not UTF-8: rename it"))
        elif is_image(file):
            found.images[file] = "train"
        else:
            found.others.append((file, f"not an image by its suffix ({', '.join(SUFFIXES)})"))
    found.others += [(folder, "a folder inside a class folder, not searched") for folder in folders]
    return found


def walk(root: Path) -> list[Path]:
    """Return all files below a folder; links that lead back are not followed."""
    found, seen, waiting = list[Path](), set[tuple[int, int]](), [root]
    while waiting:
        folder = waiting.pop()
        inner, files = entries(folder, "folder")
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            found += files
            waiting += reversed(inner)
    return found


def _refuse_domains(root: Path, classes: Sequence[ClassImages]) -> None:
    """Raise DataError if the images lie one level too deep."""
    nested = [folder for folder in classes if _holds_image_folders(folder)]
    if not nested or any(folder.images and not for_layout(folder.name) for folder in classes):
        return
    best, names = min(nested, key=_rank), listed([folder.name for folder in nested], NAMED)
    raise DataError(
        f"'{root}' holds a folder for each domain or part ({names}), not for each class: "
        + (
            "the images to train on are missing. If a table names the class of each image, set "
            "data.table to it."
            if _rank(best) > 1
            else f"point data.path at one of them, such as '{best.path}'."
        )
    )


def _rank(folder: ClassImages) -> int:
    """Return 0 for a folder of training images, 1 for a domain, and 2 for tests and the like."""
    return 0 if folder.name.lower().startswith("train") else 1 + for_layout(folder.name)


def _holds_image_folders(folder: ClassImages) -> bool:
    return any(
        path.is_dir() and any(map(is_image, entries(path, "folder")[1]))
        for path, _ in folder.others
    )
