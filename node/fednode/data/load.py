"""Turn data settings into one node's splits, or into a list of all faults in them.

Files are examined before splits are drawn. So splits hold readable images only, and do not change
because training meets a damaged file. Importing this file does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Final
from unicodedata import normalize

from fednode.data import base, builtin, copies, groups, splits
from fednode.data.base import BUILTIN, DataSettings, Image, NodeData, Split
from fednode.data.files import DESCRIPTORS
from fednode.data.folder import ClassFolder, Found, walk
from fednode.data.images import Cache, Verdict, examine
from fednode.data.names import TABLES, for_layout, same, shown, unsendable
from fednode.data.official import found_in
from fednode.data.reasons import listed
from fednode.data.splits import Files
from fednode.data.table import read_classes
from fednode.errors import DataError

NAMED: Final = 4
"""Most folders, or kinds of files, that a sentence names."""


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
    """Intermediate results on the way from folders to splits.

    folders: the chosen classes; once files are examined, those that this node opens, with readable
    images alone. fixed, whole: as `load` takes them.
    """

    settings: DataSettings
    fixed: bool
    whole: bool
    folders: dict[str, ClassFolder] = field(default_factory=dict)
    base: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    verdicts: Mapping[Path, Verdict] = field(default_factory=dict)
    groups: Mapping[Path, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    watched: tuple[Path, ...] = ()
    constant: list[Path] = field(default_factory=list)

    @property
    def by_content(self) -> bool:
        """Whether a hash of content or patient decides on each image (splits.py)."""
        changes = not self.fixed and self.settings.path != BUILTIN
        return changes or self.settings.groups is not None

    @property
    def published(self) -> bool:
        """Whether the test images are those of a published split."""
        return any(folder.test is not None for folder in self.folders.values())

    def unit(self, path: Path) -> str:
        """Return what an image is drawn by: its patient, or its content."""
        drawn = self.settings.groups is not None and path in self.groups
        return f"patient {self.groups[path]}" if drawn else self.verdicts[path].digest

    def split(self, names: Sequence[str], files: Mapping[str, Sequence[Path]]) -> Split:
        classes = tuple(self.folders[name].display for name in names)
        images = [Image(path, label) for label, name in enumerate(names) for path in files[name]]
        return Split(classes, tuple(images))


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
    notes = [*listed(survey.skipped, survey.constant), *survey.notes]
    problems += [Problem(text, fatal=False) for text in notes]
    said = () if data is None else data.warnings
    return problems + [Problem(text, fatal=False, warns=True) for text in said], data


def _survey(
    settings: DataSettings,
    cache: Cache | None,
    progress: base.ProgressFn,
    fixed: bool = False,
    whole: bool = False,
) -> tuple[_Survey, NodeData | None]:
    survey, root = _Survey(settings=settings, fixed=fixed, whole=whole), _root(settings)
    layout = _find_classes(survey, root)
    for step in (
        partial(_choose, survey, layout),
        partial(_check_partition, survey),
        partial(_examine, survey, cache, progress),
        partial(_group, survey, root),
    ):
        step()
        if survey.faults:
            return survey, None
    data = _draw(survey)
    return survey, None if survey.faults else data


def _root(settings: DataSettings) -> Path:
    if settings.path == BUILTIN:
        return builtin.root()
    if not settings.path.strip():
        raise DataError('data.path is empty: give a folder of class folders, or "builtin".')
    return Path(settings.placed().path)


# Classes ------------------------------------------------------------------------------------------


def _find_classes(survey: _Survey, root: Path) -> Found:
    """Return the classes of the data folder, before any is chosen."""
    settings = survey.settings
    table, nested = settings.placed().table, settings.groups == base.FOLDER
    layout = read_classes(root, Path(table), settings.columns) if table else found_in(root, nested)
    if nested and layout.source:
        raise DataError(
            f"data.groups is '{base.FOLDER}', and '{root}' has a published split, whose folders "
            f"are parts and classes: give {base.DICOM}, or a regular expression that finds the "
            "patient."
        )
    if nested and not table:
        layout = replace(layout, watched=(*layout.watched, *walk(root)[1]))
    survey.notes.extend(layout.notes)
    survey.skipped.extend(layout.strays)
    survey.watched = layout.watched
    if survey.whole:
        every = [replace(one, files=one.every, validation=(), test=None) for one in layout.classes]
        return replace(layout, classes=tuple(every))
    if layout.source:
        survey.notes.append(
            f"Classes, their order and the test images are those of '{layout.source}'."
            if settings.test
            else f"Classes and their order are those of '{layout.source}'; data.test is 0, so its "
            "test images train."
        )
    return layout


def _choose(survey: _Survey, layout: Found) -> None:
    """Store the folders of the chosen classes, in their order."""
    settings = survey.settings
    every = {folder.name: folder for folder in layout.classes}
    rename = {normalize("NFC", name): text for name, text in (settings.rename or {}).items()}
    wanted = [normalize("NFC", name) for name in settings.classes or ()]
    survey.folders = {
        name: replace(folder, text=rename.get(name, folder.text))
        for name, folder in every.items()
        if settings.classes is None or name in wanted
    }
    survey.faults += _class_faults(survey, layout, wanted, rename)
    names = tuple(survey.folders)
    if len(names) < (1 if survey.whole else 2) and not survey.faults:
        survey.faults.append(
            f"'{layout.root}' gives {len(names)} class to tell apart "
            f"({', '.join(names) or 'none'}); it takes at least 2."
        )
    empty = [folder for folder in survey.folders.values() if not folder.files]
    survey.faults += map(_empty_class, empty)
    survey.base, survey.new = splits.halves(names) if settings.halves else (names, ())


def _class_faults(
    survey: _Survey, layout: Found, wanted: Sequence[str], rename: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is wrong with the names of classes."""
    settings, every = survey.settings, [folder.name for folder in layout.classes]
    if settings.classes is None and not layout.source and not settings.table:
        yield from _no_classes(layout)
    for key, names in (("classes", wanted), ("rename", rename)):
        for name in names:
            if name not in every:
                yield _unknown_class(key, name, every, layout.root)
    repeated = sorted({name for name in wanted if wanted.count(name) > 1})
    if repeated:
        yield f"data.classes names '{repeated[0]}' more than once."
    seen = dict[str, str]()
    for name, folder in survey.folders.items():
        if name in rename and not folder.text.strip():
            yield f"data.rename gives the class '{name}' an empty name."
        elif rename and (other := seen.setdefault(same(folder.display), name)) != name:
            # Without data.rename a published list may give two folders one name.
            yield (
                f"data.rename gives the classes '{other}' and '{name}' the same name "
                f"'{folder.display}': put their images into one folder, or give them two names."
            )
        if why := unsendable(folder.display):
            yield (
                f"The class '{shown(folder.name)}' {why}: rename its folder, or give it another "
                "name with data.rename."
            )


def _no_classes(layout: Found) -> Iterator[str]:
    """Yield why the folders are no classes: their names, or a table beside them."""
    named = [folder.path.name for folder in layout.classes if for_layout(folder.name)]
    tables = [path.name for path, _ in layout.strays if path.suffix.lower() in TABLES]
    parts = []
    if named:
        few = "', '".join(named[:NAMED])
        parts.append(f"its folders '{few}' are named as parts of a data set, not as classes")
    if tables:
        parts.append(f"the table '{tables[0]}' lies beside them")
    if parts:
        table = layout.root / (tables[0] if tables else "FILE.csv")
        yield (
            f"'{layout.root}' holds no folder for each class, it seems: {'; '.join(parts)}. If a "
            f"table names the class of each image, set data.table to '{table}'; otherwise sort the "
            "images into a folder for each class. If the folders are classes, list them in "
            "data.classes."
        )


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
        why = (
            "no image, only folders: images are read from the class folder itself, so move them up "
            "or remove the folder."
        )
    elif folder.others:
        kinds = {path.suffix.lower() or "no suffix" for path, _ in folder.others}
        files = "1 file" if len(folder.others) == 1 else f"{len(folder.others)} files"
        why = (
            f"{files}, and no suffix that is read ({', '.join(sorted(kinds)[:NAMED])}): convert "
            "them, or leave the class out through data.classes."
        )
    else:
        why = "no image: add some, remove the folder, or leave the class out through data.classes."
    return f"{folder.title} holds {why}"


# The part of this node ----------------------------------------------------------------------------


def _check_partition(survey: _Survey) -> None:
    """Record what is wrong with data.partition."""
    partition, classes = survey.settings.partition, len(survey.base)
    if partition.how == "none":
        return
    if partition.index is None or partition.count is None:
        survey.faults.append(
            f'data.partition.how is "{partition.how}" but index and count are not set: give '
            "both, or start the node with a peers.yaml, whose order fills them in."
        )
    elif partition.how == "classes" and partition.count > classes:
        survey.faults.append(
            f"data.partition.count is {partition.count}, but there are only {classes} classes to "
            "divide: use fewer nodes or more classes."
        )


def _block(survey: _Survey) -> tuple[str, ...]:
    """Return the base classes that this node holds."""
    partition, classes = survey.settings.partition, len(survey.base)
    if partition.how != "classes":
        return survey.base
    labels = splits.even_blocks(classes, partition.count or 1)[partition.index or 0]
    return survey.base[labels.start : labels.stop]


def _examine(survey: _Survey, cache: Cache | None, progress: base.ProgressFn) -> None:
    """Keep the readable images of the classes that this node opens; record what is skipped."""
    opened = (*survey.base, *survey.new) if survey.settings.halves else _block(survey)
    wanted = {name: survey.folders[name] for name in opened}
    paths = [path for folder in wanted.values() for path in folder.every]
    if survey.settings.path == BUILTIN:
        sums = builtin.sums()
        survey.verdicts = {
            path: Verdict(builtin.fault(path, sums), digest=sums.get(path, "")) for path in paths
        }
    else:
        survey.verdicts = examine(paths, survey.settings.window, cache, progress)
    verdicts = survey.verdicts
    closed = [path for path in paths if DESCRIPTORS in (verdicts[path].fault or "")]
    if closed:
        survey.faults.append(f"{len(closed)} images, such as '{closed[0]}', wait: {DESCRIPTORS}.")
        return

    def readable(files: Files) -> Files:
        return tuple(path for path in files if verdicts[path].fault is None)

    survey.constant += [path for path in paths if verdicts[path].constant]
    several = [path for path in paths if verdicts[path].frames > 1]
    if several:
        survey.notes.append(
            f"DICOM files with several frames: {len(several)}, such as '{several[0]}' "
            f"({verdicts[several[0]].frames} frames). The middle frame of each is used."
        )
    survey.folders = {}
    for name, folder in wanted.items():
        bad = [(path, why) for path in folder.every if (why := verdicts[path].fault) is not None]
        survey.skipped += [*folder.others, *bad]
        good = replace(
            folder,
            files=readable(folder.files),
            validation=readable(folder.validation),
            test=None if folder.test is None else readable(folder.test),
        )
        survey.folders[name] = good
        divided = survey.settings.test > 0.0 and folder.test is None and not survey.whole
        if not good.files:
            path, why = bad[0]
            survey.faults.append(
                f"{folder.title} holds no readable image: all {len(bad)} were "
                f"skipped, such as '{path.name}' ({why})."
            )
        elif len(good.files) == 1 and divided:
            survey.faults.append(
                f"{folder.title} holds 1 readable image; a test split needs at "
                "least 2: add images, or set data.test to 0."
            )


def _group(survey: _Survey, root: Path) -> None:
    """Store the patients of the readable images; record that data.groups finds none."""
    how = survey.settings.groups
    images = {path: folder.path for folder in survey.folders.values() for path in folder.every}
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


# Test, validation and training images -------------------------------------------------------------


def _draw(survey: _Survey) -> NodeData | None:
    """Return the splits; None if there are too few images to divide among nodes."""
    settings, partition = survey.settings, survey.settings.partition
    test = _test_images(survey)
    if survey.whole:
        return _assemble(survey, dict.fromkeys(test, ()), dict.fromkeys(test, ()), test)
    pools = {name: _training_pool(survey, survey.folders[name], test[name]) for name in test}
    own = {name: pools[name] for name in _block(survey)}
    if partition.how == "dirichlet":
        images, count = sum(map(len, own.values())), partition.count or 1
        if count > images:
            survey.faults.append(
                f"data.partition.count is {count}, but there are only {images} training images "
                "to divide: use fewer nodes or more images."
            )
            return None
        parts = splits.dirichlet(own, count, partition.alpha, settings.seed)
        own = parts[partition.index or 0]
    train, validation = _validated(survey, own)
    survey.notes += _training_notes(settings, own, train, validation)
    return _assemble(survey, train, validation, test)


def _test_images(survey: _Survey) -> dict[str, Files]:
    """Return the test images of each class: all, the published ones, or drawn ones."""
    share, folders = survey.settings.test, survey.folders
    if survey.whole:
        return {name: splits.in_order(folder.files) for name, folder in folders.items()}
    test, drawn = dict[str, Files](), dict[str, Files]()
    for name, folder in folders.items():
        if folder.test is not None:
            test[name] = folder.test if share else ()
        elif survey.by_content:
            drawn[name] = folder.files
        else:
            test[name], _ = splits.draw_test(folder.files, name, share)
    return test | _held_out(survey, drawn, share, splits.TEST_SEED, "test")


def _training_pool(survey: _Survey, folder: ClassFolder, test: Files) -> Files:
    """Return a class's images that no test takes, in the order in which training takes them."""
    settings = survey.settings
    tested = set(test)
    files = [path for path in folder.files if path not in tested]
    if folder.test is not None and not settings.test:
        files += [*folder.test, *(() if settings.validation else folder.validation)]
    if not survey.by_content:
        return splits.shuffle(files, folder.name, settings.seed)

    def place(path: Path) -> float:
        return splits.place(survey.verdicts[path].digest, settings.seed, "train")

    return tuple(sorted(splits.in_order(files), key=place))


def _held_out(
    survey: _Survey,
    classes: Mapping[str, Files],
    share: float,
    seed: int,
    purpose: str,
    last: bool = False,
) -> dict[str, Files]:
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


def _validated(
    survey: _Survey, own: Mapping[str, Files]
) -> tuple[dict[str, Files], dict[str, Files]]:
    """Return the training and the validation images of each class.

    Published validation images are used by nodes that have all images of their classes. Nodes that
    share classes draw theirs from their own images, so that no two nodes have the same.
    """
    settings = survey.settings
    share, shots = settings.validation, settings.shots
    dealt = settings.partition.how == "dirichlet"
    kept = {
        name: survey.folders[name].validation
        for name in own
        if share and not dealt and survey.folders[name].validation
    }
    drawn = {name: files for name, files in own.items() if name not in kept}
    if dealt or not survey.by_content:
        kept |= {name: splits.draw_training(own[name], shots, share)[1] for name in drawn}
    else:
        kept |= _held_out(survey, drawn, share, settings.seed, "train", last=True)
    train = {}
    for name, files in own.items():
        validating = set(kept[name])
        rest = tuple(path for path in files if path not in validating)
        train[name] = rest[:shots] if shots else rest
    return train, {name: kept[name] for name in own}


def _training_notes(
    settings: DataSettings,
    own: Mapping[str, Files],
    train: Mapping[str, Files],
    validation: Mapping[str, Files],
) -> Iterator[str]:
    """Yield how the training images differ from what the settings ask for."""
    shots = settings.shots
    few = [name for name, files in train.items() if len(files) < shots]
    if few:
        least = min(len(train[name]) for name in few)
        yield (
            f"{len(few)} of {len(train)} classes {'has' if len(few) == 1 else 'have'} fewer than "
            f"{shots} training images (the fewest: {least}, first such class: '{few[0]}'); all of "
            "them are used."
        )
    if len(train) == 1:
        yield (
            f"This node's only class is '{next(iter(train))}': with nothing to tell it apart "
            "from, its training changes nothing."
        )
    used = sum(map(len, train.values()))
    there = sum(len(set(own[name]).difference(validation[name])) for name in own)
    if used < there:
        yield (
            f"This node uses {used:,} of {there:,} training images: data.shots is {shots}; 0 takes "
            "all."
        )


def _assemble(
    survey: _Survey,
    train: Mapping[str, Files],
    validation: Mapping[str, Files],
    test: Mapping[str, Files],
) -> NodeData:
    names, halves = tuple(train), survey.settings.halves
    # All test images that the node opens, which with halves are those of new classes, too.
    every = survey.split(tuple(test), test)
    sets = {
        "training": survey.split(names, train),
        "validation": survey.split(names, validation),
        "test": every,
    }
    survey.notes += copies.note(sets, survey.verdicts)
    warnings = copies.warnings(sets["training"], every, survey.verdicts) + _divided(survey, sets)
    return NodeData(
        train=sets["training"],
        validation=sets["validation"],
        own=survey.split(names, test),
        base=survey.split(survey.base, test) if halves else None,
        new=survey.split(survey.new, test) if halves else None,
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
        cure = f"set data.groups to {base.DICOM}, and no patient is divided."
        said = (
            f"{len(both):,} of {len(every):,} patients (by {how}) {verb} {first} images and "
            f"{second} images, so the accuracy does not tell how well new patients are recognized: "
            f"{'divide the published images by patient.' if survey.published else cure}"
        )
        if survey.settings.groups is None:
            return [said]
        survey.faults.append(said)
    if not survey.groups and survey.settings.path != BUILTIN:
        names = groups.numbered(folder.files for folder in survey.folders.values())
        survey.notes += groups.numbers_note(names, sets["training"], sets["test"])
    return []
