"""Read the class of each image from a table: a CSV file whose first line names the columns.

The separator is a comma, a semicolon or a tab. `data.columns` names the columns of files and
classes, or they have one of the usual names. A file is written as a path from the table or from
`data.path`, or as the end of such a path, without its suffix if that is not needed to find it.

A bare name is looked up in one folder only: a table of training images often writes `7.png`, and a
folder of test images beside them may hold another `7.png`.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from unicodedata import normalize

from fednode.data.decode import is_image
from fednode.data.files import is_utf8, read_list, why
from fednode.data.folder import ClassImages, Listing, sort_key, walk
from fednode.data.names import TABLES, refuse_twins
from fednode.errors import DataError
from fednode.units import listed

FILES: Final = re.compile(
    "(image|img|file|dicom)(_?(id|index|name|path|file|filename))?|path|id_code"
)
LABELS: Final = re.compile(
    "labels?|class(_?(label|name))?|category|target|diagnosis|dx|finding_labels|level|species|breed"
)
"""The usual names of the two columns, in small letters; a blank or hyphen counts as "_"."""
TESTS: Final = re.compile(r"(?<![a-z])test(s|ing)?(?![a-z])")
"""How a folder or a table of test images is named."""
COLUMNS_NAMED: Final = 12


@dataclass(frozen=True, slots=True)
class Row:
    """One image of a table: the number of its line, its file and its class as they are written."""

    line: int
    file: str
    label: str


def read_classes(root: Path, table: Path, columns: tuple[str, str] | None) -> Listing:
    """Return the classes of the images below root that a table names.

    A class has `others`: files that are not there. Raise DataError if the table is wrong.
    """
    rows = list(read_rows(table, columns))
    files = _Files(root, table, rows)
    classes, lines = dict[str, ClassImages](), dict[Path, Row]()
    strays, repeated = list[tuple[Path, str]](), 0
    for row in rows:
        if not row.label:
            strays.append((root / row.file, f"no class in '{table.name}'"))
            continue
        new = ClassImages(name=normalize("NFC", row.label), path=root, source=table.name)
        one = classes.setdefault(row.label, new)
        path = files.find(row)
        if path is None:
            one.others.append((root / row.file, f"named by '{table.name}', and not there"))
            continue
        first = lines.setdefault(path, row)
        if first.label != row.label:
            raise DataError(
                f"'{table}' gives '{row.file}' the class '{first.label}' in line {first.line} and "
                f"'{row.label}' in line {row.line}: an image has one class."
            )
        one.images[path] = "train"
        repeated += first is not row
    if not lines:
        raise DataError(_no_image(root, table, rows))
    refuse_twins(f"'{table}'", [(name, name) for name in classes])
    notes = [f"The classes of the images are those of '{table}'."]
    if repeated:
        notes.append(f"{repeated:,} lines of '{table.name}' repeat one; an image counts once.")
    if unnamed := len(files.images) - len(lines):
        notes.append(f"'{table.name}' does not name {unnamed:,} images, which are not used.")
    ordered = [classes[name] for name in sorted(classes, key=sort_key)]
    return Listing(root, ordered, strays, notes=notes)


def read_rows(table: Path, columns: tuple[str, str] | None) -> Iterator[Row]:
    """Yield the rows of a table; raise DataError if it has none, or lacks a column."""
    if table.suffix.lower() in set(TABLES) - {".csv", ".tsv"}:
        raise DataError(f"data.table is '{table}'; tables are read as CSV: save it as CSV (UTF-8).")
    try:
        text = read_list(table)
        first = next((line for line in text.splitlines() if line.strip()), "")
        separator = max(",;\t", key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        lines = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except FileNotFoundError:
        raise DataError(
            f"The table '{table}' does not exist: a path in data.table counts from data.path."
        ) from None
    except (OSError, ValueError, csv.Error) as fault:
        text = why(fault) if isinstance(fault, OSError) else str(fault)
        raise DataError(f"The table '{table}' cannot be read: {text}.") from None
    if len(lines) < 2:
        raise DataError(f"The table '{table}' names no image: its first line names the columns.")
    names = [name.strip() for name in lines[0][1]]
    places = _places(table, names, columns)
    for number, cells in lines[1:]:
        if any(map(str.strip, cells[len(names) :])):
            raise DataError(
                f"'{table}' has {len(cells)} cells in line {number} and {len(names)} columns: put "
                f"a text that holds a separator ({separator!r}) between quotes."
            )
        file, label = (cells[at].strip() if at < len(cells) else "" for at in places)
        if not file:
            raise DataError(f"'{table}' names no file in line {number}: name it, or drop the line.")
        yield Row(number, file, label)


def _places(table: Path, names: Sequence[str], columns: tuple[str, str] | None) -> list[int]:
    """Return the places of the columns of files and of classes."""
    places = []
    for at, (use, usual) in enumerate((("files", FILES), ("classes", LABELS))):
        if columns is None:
            wanted = [name for name in names if usual.fullmatch(_plain(name))]
            lacks = f"no column whose name says that it holds the {use}"
        else:
            wanted = [columns[at]] if columns[at] in names else []
            lacks = f"no column '{columns[at]}', which data.columns names"
        if len(wanted) != 1:
            several = f"several columns that may be the {use} ({', '.join(wanted)})"
            raise DataError(
                f"The table '{table}' has {several if wanted else lacks}; it has "
                f"{listed(names, COLUMNS_NAMED)}: set data.columns to the column of files and the "
                "column of classes."
            )
        places.append(names.index(wanted[0]))
    return places


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")


def _no_image(root: Path, table: Path, rows: Sequence[Row]) -> str:
    if not any(row.label for row in rows):
        return f"'{table}' gives no image a class: its column of classes is empty."
    return (
        f"'{table}' names {len(rows):,} images, such as '{rows[0].file}', and none of them lies in "
        f"'{root}': set data.path to the folder of the images."
    )


class _Files:
    """The images below a folder, and how a table may write them."""

    def __init__(self, root: Path, table: Path, rows: Sequence[Row]) -> None:
        self._table, self._bases = table, (table.parent, root)
        self.images = {path for path in walk(root) if is_utf8(path.name) and is_image(path)}
        self._by_name: dict[str, list[Path]] = {}
        for path in sorted(self.images):
            for name in {path.name, path.stem}:
                self._by_name.setdefault(name, []).append(path)
        self._bare_folders = self._find_bare_folders(rows)

    def find(self, row: Row) -> Path | None:
        """Return the image that a row means; None if it is not there."""
        for base in self._bases:
            path = Path(os.path.normpath(base / _written(row)))
            if path in self.images:
                return path
        *folders, name = _written(row).parts or (".",)
        above = len(folders)
        ends = [
            path
            for path in self._by_name.get(name, ())
            if path.parts[-1 - above : -1] == tuple(folders)
            and (above or path.parent in self._bare_folders)
        ]
        found = [path for path in ends if path.name == name] or ends
        if len(found) > 1:
            raise DataError(
                f"'{self._table}' names '{row.file}' in line {row.line}, which may be '{found[0]}' "
                f"or '{found[1]}': write the path from data.path, with its suffix."
            )
        return found[0] if found else None

    def _find_bare_folders(self, rows: Sequence[Row]) -> set[Path]:
        """Return the folders in which names without a folder are looked up.

        That of the table and data.path, if an image of such a name lies there. Else the only folder
        below that has any, or folders that differ in their numbers alone, such as part_1, part_2.
        """
        bare = {_written(row).name for row in rows if len(_written(row).parts) == 1}
        images = [path for name in sorted(bare) for path in self._by_name.get(name, ())]
        folders = {path.parent for path in images}
        if direct := folders & set(self._bases):
            return direct
        kinds: dict[str, Path] = {}
        for path in images:
            kinds.setdefault(re.sub(r"\d+", "0", str(path.parent)), path)
        if len(kinds) > 1:
            first, second, *_ = kinds.values()
            raise DataError(
                f"'{self._table}' names images without their folders, such as '{first.name}' in "
                f"'{first.parent}' and '{second.name}' in '{second.parent}': write paths from "
                "data.path, or set data.path to the folder of the table's images."
            )
        tests = [folder for folder in folders if TESTS.search(folder.name.lower())]
        if tests and not TESTS.search(self._table.stem.lower()):
            raise DataError(
                f"'{self._table}' names images without their folders, and '{tests[0]}', in which "
                "alone such images lie, is named as a folder of test images: set data.path to the "
                "folder of the table's images."
            )
        return folders


def _written(row: Row) -> PurePosixPath:
    return PurePosixPath(row.file.replace("\\", "/"))
