"""Turn data settings into one node's splits, or into a list of all faults in them.

Files are examined before splits are drawn. So splits hold readable images only, and do not change
because training meets a damaged file. Importing this file does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from unicodedata import normalize

from fednode.data import base, builtin, copies, groups, splits
from fednode.data.base import BUILTIN, DataSettings, Image, NodeData, PartitionSettings, Split
from fednode.data.files import DESCRIPTORS
from fednode.data.folder import ClassFolder, Found, walk
from fednode.data.images import Cache, Verdict, examine
from fednode.data.names import TABLES, for_layout, same, shown, unsendable
from fednode.data.official import found_in
from fednode.data.reasons import listed
from fednode.data.table import read_classes
from fednode.errors import DataError

LAYOUT_NAMED: Final = 4
"""Most folders that are no classes, and that a sentence names."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence about the data; if it is fatal, no node can start with the data.

    warns: the test accuracy is wrong.
    """

    text: str
    fatal: bool
    warns: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True, kw_only=True)
class _Survey:
    """Intermediate results on the way from folders to splits."""

    settings: DataSettings
    folders: dict[str, ClassFolder] = field(default_factory=dict)
    base: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    place: tuple[int, int] | None = None
    readable: dict[str, list[Path]] = field(default_factory=dict)
    verdicts: Mapping[Path, Verdict] = field(default_factory=dict)
    published: dict[str, tuple[splits.Files, splits.Files]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    watched: tuple[Path, ...] = ()
    constant: list[Path] = field(default_factory=list)
    fixed: bool = False
    whole: bool = False
    groups: Mapping[Path, str] = field(default_factory=dict)

    @property
    def by_content(self) -> bool:
        """Whether a hash of content or patient decides on each image (splits.py)."""
        changes = not self.fixed and self.settings.path != BUILTIN
        return changes or self.settings.groups is not None

    def unit(self, path: Path) -> str:
        """Return what an image is drawn by: its patient, or its content."""
        drawn = self.settings.groups is not None and path in self.groups
        return f"patient {self.groups[path]}" if drawn else self.verdicts[path].digest


def load(
    settings: DataSettings,
    cache: Cache | None = None,
    progress: base.ProgressFn = base.no_progress,
    *,
    fixed: bool = False,
    whole: bool = False,
) -> NodeData:
    """Return the splits of one node.

    cache: keeps the results of examining image files; None examines every file anew. progress: how
    many files are examined. fixed: the data set does not change, so the shares of its splits are
    exact. whole: all images are test images, of one class or more. Raise DataError if the data
    cannot be used; the message has the first fault and the number of the others.
    """
    survey, data = _survey(settings, cache, progress, fixed, whole)
    if data is None:
        more = len(survey.faults) - 1
        others = "1 more fault" if more == 1 else f"{more} more faults"
        hint = f" ({others}: `fednode check` lists all.)" if more else ""
        raise DataError(survey.faults[0] + hint)
    return data


def look(
    settings: DataSettings, cache: Cache | None = None, progress: base.ProgressFn = base.no_progress
) -> tuple[list[Problem], NodeData | None]:
    """Return everything that is wrong with the data, and the splits; None on a fatal problem."""
    try:
        survey, data = _survey(settings, cache, progress)
    except DataError as error:
        return [Problem(str(error), fatal=True)], None
    problems = [Problem(text, fatal=True) for text in survey.faults]
    problems += [Problem(text, fatal=False) for text in listed(survey.skipped, survey.constant)]
    problems += [Problem(text, fatal=False) for text in survey.notes]
    said = () if data is None else data.warnings
    return problems + [Problem(text, fatal=False, warns=True) for text in said], data


def _root(settings: DataSettings) -> Path:
    if settings.path == BUILTIN:
        return builtin.root()
    if not settings.path.strip():
        raise DataError('data.path is empty: give a folder of class folders, or "builtin".')
    return Path(settings.placed().path)


def _survey(
    settings: DataSettings,
    cache: Cache | None,
    progress: base.ProgressFn,
    fixed: bool = False,
    whole: bool = False,
) -> tuple[_Survey, NodeData | None]:
    survey = _Survey(settings=settings, fixed=fixed, whole=whole)
    root, table = _root(settings), settings.placed().table
    nested = settings.groups == base.FOLDER
    layout = read_classes(root, Path(table), settings.columns) if table else found_in(root, nested)
    if nested and not table:
        layout = replace(layout, watched=(*layout.watched, *walk(root)[1]))
    survey.notes.extend(layout.notes)
    survey.skipped.extend(layout.strays)
    survey.watched = layout.watched
    if whole:
        every = [replace(one, files=one.every, validation=(), test=None) for one in layout.classes]
        layout = replace(layout, classes=tuple(every), source="")
    if layout.source:
        survey.notes.append(
            f"Classes, their order and the test images are those of '{layout.source}'."
            if settings.test
            else f"Classes and their order are those of '{layout.source}'; data.test is 0, so its "
            "test images train."
        )
    names = _choose(survey, layout)
    if survey.faults:
        return survey, None
    survey.base, survey.new = splits.halves(names) if settings.halves else (names, ())
    survey.place = _place(survey, settings.partition)
    _examine(survey, _needed(survey), cache, progress)
    if not survey.faults:
        _group(survey, root)
    if survey.faults:
        return survey, None
    data = _draw(survey)
    return survey, None if survey.faults else data


def _choose(survey: _Survey, layout: Found) -> tuple[str, ...]:
    """Store the folders of the chosen classes; return the classes' names in their order."""
    settings = survey.settings
    every = {folder.name: folder for folder in layout.classes}
    rename = {normalize("NFC", name): text for name, text in (settings.rename or {}).items()}
    if settings.classes is None and not layout.source and not settings.table:
        survey.faults += _no_classes(layout)
    chosen_names = every if settings.classes is None else settings.classes
    wanted = tuple(normalize("NFC", name) for name in chosen_names)
    for name in wanted:
        if name not in every:
            survey.faults.append(_unknown_class("classes", name, list(every), layout.root))
    repeated = sorted({name for name in wanted if wanted.count(name) > 1})
    if repeated:
        survey.faults.append(f"data.classes names '{repeated[0]}' more than once.")
    chosen = set(wanted)
    names = tuple(name for name in every if name in chosen)
    survey.folders = {name: _renamed(every[name], rename) for name in names}
    survey.faults += [
        _unknown_class("rename", name, list(every), layout.root)
        for name in rename
        if name not in every
    ]
    survey.faults += _same_names(survey)
    survey.faults += [
        f"The class '{shown(folder.name)}' {why}: rename its folder, or give it another name with "
        "data.rename."
        for folder in survey.folders.values()
        if (why := unsendable(folder.display))
    ]
    if len(names) < (1 if survey.whole else 2) and not survey.faults:
        survey.faults.append(
            f"'{layout.root}' gives {len(names)} class to tell apart "
            f"({', '.join(names) or 'none'}); it takes at least 2."
        )
    empty = [folder for folder in survey.folders.values() if not folder.files]
    survey.faults += map(_empty_class, empty)
    return names


def _no_classes(layout: Found) -> list[str]:
    """Return why the folders are no classes: their names, or a table beside them."""
    named = [folder.path.name for folder in layout.classes if for_layout(folder.name)]
    tables = [path.name for path, _ in layout.strays if path.suffix.lower() in TABLES]
    if not named and not tables:
        return []
    parts = []
    if named:
        few = "', '".join(named[:LAYOUT_NAMED])
        parts.append(f"its folders '{few}' are named as parts of a data set, not as classes")
    if tables:
        parts.append(f"the table '{tables[0]}' lies beside them")
    table = layout.root / tables[0] if tables else "FILE.csv"
    return [
        f"'{layout.root}' holds no folder for each class, it seems: {'; '.join(parts)}. If a table "
        f"names the class of each image, set data.table to '{table}'; otherwise sort the images "
        "into a folder for each class. If the folders are classes, list them in data.classes."
    ]


def _renamed(folder: ClassFolder, names: Mapping[str, str]) -> ClassFolder:
    return replace(folder, text=names[folder.name]) if folder.name in names else folder


def _same_names(survey: _Survey) -> list[str]:
    """Return the faults of data.rename: empty names, and folders that get one name."""
    faults, seen = [], dict[str, str]()
    if not survey.settings.rename:  # a published list may give two folders one name
        return []
    for name, folder in survey.folders.items():
        if not folder.text.strip() and name in (survey.settings.rename or {}):
            faults.append(f"data.rename gives the class '{name}' an empty name.")
        elif (other := seen.setdefault(same(folder.display), name)) != name:
            faults.append(
                f"data.rename gives the classes '{other}' and '{name}' the same name "
                f"'{folder.display}': put their images into one folder, or give them two names."
            )
    return faults


def _unknown_class(key: str, name: str, known: Sequence[str], root: Path) -> str:
    near = get_close_matches(name, known, 1, 0.6) or get_close_matches(
        name.replace(" ", "_").lower(), known, 1, 0.6
    )
    hint = f"the nearest is '{near[0]}'" if near else f"there are {', '.join(known[:5])} ..."
    return f"data.{key} names '{name}', which is no class in '{root}'; {hint}."


def _empty_class(folder: ClassFolder) -> str:
    if folder.source:
        return (
            f"{folder.title} has no image to train on in '{folder.path}': add the missing files, "
            "or leave the class out through data.classes."
        )
    if any(path.is_dir() for path, _ in folder.others):
        return (
            f"The class folder '{folder.path}' holds no image, only folders: images are read from "
            "the class folder itself, so move them up or remove the folder."
        )
    files = [path for path, _ in folder.others]
    if files:
        kinds = ", ".join(
            sorted({path.suffix.lower() or "no suffix" for path in files})[:LAYOUT_NAMED]
        )
        held = (
            "1 file, and it has no suffix"
            if len(files) == 1
            else f"{len(files)} files, and none has a suffix"
        )
        return (
            f"The class folder '{folder.path}' holds {held} that is read ({kinds}): convert them, "
            "or leave the class out through data.classes."
        )
    return (
        f"The class folder '{folder.path}' holds no image: add some, remove the folder, or leave "
        "the class out through data.classes."
    )


def _place(survey: _Survey, partition: PartitionSettings) -> tuple[int, int] | None:
    """Return (index, count) if the data set is divided among nodes; None if not, or on a fault."""
    if partition.how == "none":
        return None
    index, count = partition.index, partition.count
    if index is None or count is None:
        survey.faults.append(
            f'data.partition.how is "{partition.how}" but index and count are not set: give '
            "both, or start the node with a peers.yaml, whose order fills them in."
        )
        return None
    if partition.how == "classes" and partition.width is None and count > len(survey.base):
        survey.faults.append(
            f"data.partition.count is {count}, but there are only {len(survey.base)} classes to "
            "divide: use fewer nodes or more classes, or set data.partition.width."
        )
        return None
    return index, count


def _needed(survey: _Survey) -> tuple[str, ...]:
    """Return the classes whose files this node opens: all, or its own block of them."""
    settings = survey.settings
    if survey.place is None or settings.halves or settings.partition.how == "dirichlet":
        return survey.base + survey.new
    return _block(survey)


def _block(survey: _Survey) -> tuple[str, ...]:
    """Return the classes of this node, where each node holds a block."""
    assert survey.place is not None, "the data set is divided"
    (index, count), base = survey.place, survey.base
    width = survey.settings.partition.width
    if width is not None:
        chosen = set(splits.overlapping_block(len(base), index, width))
        return tuple(name for label, name in enumerate(base) if label in chosen)
    return tuple(base[label] for label in splits.even_blocks(len(base), count)[index])


def _examine(
    survey: _Survey, names: Iterable[str], cache: Cache | None, progress: base.ProgressFn
) -> None:
    """Store the readable files of each class; record unreadable files, and classes with too few."""
    wanted = [survey.folders[name] for name in names]
    paths = [path for folder in wanted for path in folder.every]
    verdicts: Mapping[Path, Verdict]
    if survey.settings.path == BUILTIN:
        known = builtin.sums()
        verdicts = {
            path: Verdict(builtin.fault(path, known), digest=known.get(path, "")) for path in paths
        }
    else:
        verdicts = examine(paths, survey.settings.window, cache, progress)
    survey.verdicts = verdicts
    closed = [path for path in paths if DESCRIPTORS in (verdicts[path].fault or "")]
    if closed:
        survey.faults.append(f"{len(closed)} images, such as '{closed[0]}', wait: {DESCRIPTORS}.")
        return
    survey.constant += [path for path in paths if verdicts[path].constant]
    _note_frames(survey, {path: verdicts[path].frames for path in paths})
    for folder in wanted:
        bad = [(path, why) for path in folder.every if (why := verdicts[path].fault) is not None]
        good = [path for path in folder.files if verdicts[path].fault is None]
        survey.skipped += [*folder.others, *bad]
        survey.readable[folder.name] = good
        if folder.test is not None:
            held = (folder.test, folder.validation)
            test, kept = ([path for path in part if verdicts[path].fault is None] for part in held)
            survey.published[folder.name] = (tuple(test), tuple(kept))
        if not good and folder.files:
            path, why = bad[0]
            survey.faults.append(
                f"{folder.title} holds no readable image: all {len(bad)} were "
                f"skipped, such as '{path.name}' ({why})."
            )
        elif len(good) == 1 and _is_divided(survey, folder):
            survey.faults.append(
                f"{folder.title} holds 1 readable image; a test split needs at "
                "least 2: add images, or set data.test to 0."
            )


def _is_divided(survey: _Survey, folder: ClassFolder) -> bool:
    """Tell whether test images are drawn from a class's images."""
    return survey.settings.test > 0.0 and folder.test is None and not survey.whole


def _group(survey: _Survey, root: Path) -> None:
    """Store the patients of the readable images; record that data.groups finds none."""
    how = survey.settings.groups
    if how == base.FOLDER and survey.published:
        survey.faults.append(
            f"data.groups is '{how}', and '{root}' has a published split, whose folders are parts "
            f"and classes: give {base.DICOM}, or a regular expression that finds the patient."
        )
        return
    images = {
        path: survey.folders[name].path
        for name, files in survey.readable.items()
        for path in (*files, *(survey.published.get(name) or ((), ()))[0], *_kept(survey, name))
    }
    survey.groups = groups.find_groups(how, root, images, survey.verdicts)
    if how is None or not images:
        return
    unknown = [path for path in images if path not in survey.groups]
    if len(unknown) == len(images):
        survey.faults.append(
            f"data.groups is '{how}', and it finds no patient of any image, such as '{unknown[0]}':"
            f" give {base.FOLDER}, {base.DICOM}, or a regular expression that finds the patient in "
            "the path."
        )
    patients = len(set(survey.groups.values())) + len(unknown)
    alone = f"; {len(unknown):,} of them have one image, whose patient is not known" * bool(unknown)
    survey.notes.append(f"The images are of {patients:,} patients by data.groups ({how}){alone}.")


def _note_frames(survey: _Survey, frames: Mapping[Path, int]) -> None:
    several = [path for path, count in frames.items() if count > 1]
    if several:
        survey.notes.append(
            f"DICOM files with several frames: {len(several)}, such as '{several[0]}' "
            f"({frames[several[0]]} frames). The middle frame of each is used."
        )


def _draw(survey: _Survey) -> NodeData | None:
    settings, partition = survey.settings, survey.settings.partition
    test = _test_images(survey)
    if survey.whole:
        return _assemble(survey, dict.fromkeys(test, ()), test)
    pools: dict[str, splits.Files] = {}
    for name, files in survey.readable.items():
        tested = set(test[name])
        rest = [path for path in files if path not in tested]
        if name in survey.published and not settings.test:
            published, _ = survey.published[name]
            rest += [*published, *(() if settings.validation else _kept(survey, name))]
        pools[name] = _shuffled(survey, name, rest)
    own = {name: pools[name] for name in survey.base if name in pools}
    if survey.place is not None and partition.how == "classes":
        own = {name: own[name] for name in _block(survey)}
    elif survey.place is not None:
        index, count = survey.place
        images = sum(map(len, own.values()))
        if count > images:
            survey.faults.append(
                f"data.partition.count is {count}, but there are only {images} training images "
                "to divide: use fewer nodes or more images."
            )
            return None
        own = splits.dirichlet(own, count, partition.alpha, settings.seed)[index]
    return _assemble(survey, own, test)


def _shuffled(survey: _Survey, name: str, files: Sequence[Path]) -> splits.Files:
    """Return a class's images in the order in which they are taken for training."""
    seed = survey.settings.seed
    if not survey.by_content:
        return splits.shuffle(files, name, seed)
    digests = {path: survey.verdicts[path].digest for path in files}
    return tuple(
        sorted(splits.in_order(files), key=lambda path: splits.place(digests[path], seed, "train"))
    )


def _test_images(survey: _Survey) -> dict[str, splits.Files]:
    """Return the test images of each class, published or drawn."""
    share = survey.settings.test
    test: dict[str, splits.Files] = {}
    if survey.whole:
        return {name: splits.in_order(files) for name, files in survey.readable.items()}
    for name, files in survey.readable.items():
        if name in survey.published:
            test[name] = survey.published[name][0] if share else ()
        elif not survey.by_content:
            test[name], _ = splits.draw_test(files, name, share)
    drawn = {name: files for name, files in survey.readable.items() if name not in test}
    return test | _held_out(survey, drawn, share, splits.TEST_SEED, "test")


def _held_out(
    survey: _Survey,
    classes: Mapping[str, Sequence[Path]],
    share: float,
    seed: int,
    purpose: str,
    last: bool = False,
) -> dict[str, splits.Files]:
    """Return the images of each class that a hash keeps from training.

    last: the images of the highest places, not of the lowest.
    """

    def place(unit: str) -> float:
        found = splits.place(unit, seed, purpose)
        return 1.0 - found if last else found

    units = {name: [survey.unit(path) for path in files] for name, files in classes.items()}
    kept = splits.held_out(units.values(), share, place)
    one = [name for name, of_class in units.items() if share and len({*of_class}) == 1]
    if one and not last:
        survey.notes.append(
            f"No image of {len(one)} classes, such as '{one[0]}', is tested: all images of the "
            "class are of one patient, or copies of one image."
        )
    return {
        name: splits.in_order(path for path in files if survey.unit(path) in kept)
        for name, files in classes.items()
    }


def _kept(survey: _Survey, name: str) -> splits.Files:
    """Return the published validation images of a class."""
    return survey.published.get(name, ((), ()))[1]


def _validated(
    survey: _Survey, own: Mapping[str, splits.Files]
) -> dict[str, tuple[splits.Files, splits.Files]]:
    """Return the training and validation images of each class.

    Published validation images are used by nodes that have all images of their classes. Nodes that
    share classes draw theirs from their own images, so that no two nodes have the same.
    """
    settings = survey.settings
    share, shots = settings.validation, settings.shots
    dealt = settings.partition.how == "dirichlet"
    published = {
        name: kept for name in own if share and not dealt and (kept := _kept(survey, name))
    }
    found = {
        name: (splits.draw_training(own[name], shots, 0.0)[0], kept)
        for name, kept in published.items()
    }
    drawn = {name: files for name, files in own.items() if name not in published}
    if dealt or not survey.by_content:
        parts = {name: splits.draw_training(files, shots, share) for name, files in drawn.items()}
        return {name: (found | parts)[name] for name in own}
    held = _held_out(survey, drawn, share, settings.seed, "train", last=True)
    for name, files in drawn.items():
        rest = tuple(path for path in files if path not in set(held[name]))
        found[name] = (rest[:shots] if shots else rest), held[name]
    return {name: found[name] for name in own}


def _assemble(
    survey: _Survey, own: Mapping[str, splits.Files], test: Mapping[str, splits.Files]
) -> NodeData:
    settings = survey.settings
    names = tuple(own)
    drawn = _validated(survey, own)
    if not survey.whole:
        _note(survey, {name: len(train) for name, (train, _) in drawn.items()})
    _note_unused(survey, own, drawn)
    train = _split(survey, names, {name: train for name, (train, _) in drawn.items()})
    validation = _split(survey, names, {name: kept for name, (_, kept) in drawn.items()})
    # All test images that the node opens, which with halves are those of new classes, too.
    every = _split(survey, tuple(test), test)
    sets = {"training": train, "validation": validation, "test": every}
    survey.notes += copies.note(sets, survey.verdicts)
    warnings = copies.warnings(train, every, survey.verdicts) + _divided(survey, sets)
    return NodeData(
        train=train,
        validation=validation,
        own=_split(survey, names, test),
        base=_split(survey, survey.base, test) if settings.halves else None,
        new=_split(survey, survey.new, test) if settings.halves else None,
        skipped=tuple(survey.skipped),
        constant=tuple(survey.constant),
        notes=tuple(survey.notes),
        warnings=tuple(warnings),
        watched=survey.watched,
        groups=survey.groups,
    )


def _divided(survey: _Survey, sets: Mapping[str, Split]) -> list[str]:
    """Return a warning on patients who both train and test; with data.groups this is a fault.

    Record a note if only the names of the files tell of patients.
    """
    for first, second in (("training", "test"), ("training", "validation"), ("validation", "test")):
        both, every = groups.divided(survey.groups, sets[first], sets[second])
        if not both or (survey.settings.groups is None and second == "validation"):
            continue
        how = survey.settings.groups or f"the DICOM tag {base.DICOM.partition(':')[2]}"
        verb = "has" if len(both) == 1 else "have"
        said = (
            f"{len(both):,} of {len(every):,} patients (by {how}) {verb} {first} images and "
            f"{second} images, so the accuracy does not tell how well new patients are recognized: "
        )
        if survey.published:
            said += "divide the published images by patient."
        else:
            said += f"set data.groups to {base.DICOM}, and no patient is divided."
        if survey.settings.groups is None:
            return [said]
        survey.faults.append(said)
    if not survey.groups and survey.settings.path != BUILTIN:
        names = groups.numbered(survey.readable.values())
        survey.notes += groups.numbers_note(names, sets["training"], sets["test"])
    return []


def _note(survey: _Survey, sizes: Mapping[str, int]) -> None:
    shots = survey.settings.shots
    few = [name for name, size in sizes.items() if size < shots]
    if few:
        least = min(sizes[name] for name in few)
        survey.notes.append(
            f"{len(few)} of {len(sizes)} classes {'has' if len(few) == 1 else 'have'} fewer than "
            f"{shots} training images (the fewest: {least}, first such class: '{few[0]}'); all of "
            "them are used."
        )
    if len(sizes) == 1:
        survey.notes.append(
            f"This node's only class is '{next(iter(sizes))}': with nothing to tell it apart "
            "from, its training changes nothing."
        )


def _note_unused(
    survey: _Survey,
    own: Mapping[str, splits.Files],
    drawn: Mapping[str, tuple[splits.Files, splits.Files]],
) -> None:
    """Say how many training images are left out; validation images are none of them."""
    used = sum(len(train) for train, _ in drawn.values())
    there = sum(len(set(own[name]).difference(kept)) for name, (_, kept) in drawn.items())
    if used < there:
        survey.notes.append(
            f"This node uses {used:,} of {there:,} training images: data.shots is "
            f"{survey.settings.shots}; 0 takes all."
        )


def _split(survey: _Survey, names: Sequence[str], files: Mapping[str, Sequence[Path]]) -> Split:
    return Split(
        classes=tuple(survey.folders[name].display for name in names),
        images=tuple(
            Image(path, label) for label, name in enumerate(names) for path in files[name]
        ),
    )
