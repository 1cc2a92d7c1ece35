"""Which images are of one patient: no patient both trains and tests.

`data.groups` says what tells patients: the folder, the DICOM tag, or a regular expression over the
path. Without it, DICOM tags are counted, and names in which a number repeats are pointed out. No
sentence names a patient of a DICOM file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from fednode.data.base import DICOM, FOLDER, Split
from fednode.data.images import Verdict

Groups = Mapping[Path, str]
NUMBER: Final = re.compile(r"\d+(?![0-9A-Za-z])")
NUMBERS_MAX: Final = 3
"""So many numbers of a file's name are looked at."""
NUMBERED: Final = 0.2
"""Share of a class's images whose number repeats, from which the numbers may be patients."""
PATIENTS: Final = 3
"""Different numbers in a class, from which they may be patients."""


def find_groups(
    how: str | None, root: Path, files: Mapping[Path, Path], verdicts: Mapping[Path, Verdict]
) -> dict[Path, str]:
    """Return the group of each image, as far as it is known.

    how: data.groups. files: images below root, and the folder of each one's class.
    """

    def group(path: Path) -> str | None:
        if how is None or how == DICOM:
            return verdicts[path].patient
        if how == FOLDER:
            inner = path.relative_to(files[path]).parts
            return inner[0] if len(inner) > 1 else None
        match = re.search(how, path.relative_to(root).as_posix())
        return match and match.group(1 if match.re.groups else 0)

    found = {path: group(path) for path in files}
    return {path: name for path, name in found.items() if name}


def divided(groups: Groups, first: Split, second: Split) -> tuple[set[str], set[str]]:
    """Return the groups that have images in both of two splits, and all groups of the two."""
    one, other = (
        {groups[image.path] for image in split.images if image.path in groups}
        for split in (first, second)
    )
    return one & other, one | other


def numbered(classes: Iterable[Sequence[Path]]) -> dict[Path, str]:
    """Return the start of each name up to a number that varies and repeats within a class.

    Of person7_a_1.png and person7_a_2.png this is person7. Empty if few names have such a number.
    """
    found: dict[Path, str] = {}
    for paths in classes:
        ends = {path: [match.end() for match in NUMBER.finditer(path.stem)] for path in paths}
        for at in range(NUMBERS_MAX):
            starts = {path: path.stem[: of[at]] for path, of in ends.items() if len(of) > at}
            counts = Counter(starts.values())
            repeated = sum(count for count in counts.values() if count > 1)
            if len(counts) >= PATIENTS and repeated >= NUMBERED * len(paths):
                found |= starts
            if len(counts) > 1:
                break
    return found


def numbers_note(groups: Groups, train: Split, test: Split) -> list[str]:
    """Return a sentence on numbers in names (groups) that both train and test, if there are any."""
    both, _ = divided(groups, train, test)
    if not both:
        return []
    path = next(image.path for image in test.images if groups.get(image.path) in both)
    letters = re.search(r"[A-Za-z]+(?=\d+$)", groups[path])
    pattern = (letters.group() if letters else "/") + r"(\d+)"
    return [
        f"Numbers in file names repeat, such as '{groups[path]}' of '{path.name}', and "
        f"{len(both):,} of them are in training and in test images. If such a number is a patient, "
        "the test accuracy is too high: set data.groups to a regular expression that finds it, "
        f"such as '{pattern}'."
    ]
