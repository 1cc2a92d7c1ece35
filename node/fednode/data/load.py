"""Turn data settings into one node's splits, or into a list of all faults in them.

Files are examined before splits are drawn. So splits hold readable images only, and do not change
because training meets a damaged file. Importing this file does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from unicodedata import normalize

from fednode.data import builtin, groups, splits
from fednode.data.base import (
    BUILTIN,
    DICOM,
    FOLDER,
    DataSettings,
    Image,
    Kind,
    NodeData,
    Problem,
    ProgressFn,
    Split,
    fault,
    no_progress,
    note,
    warning,
)
from fednode.data.files import DESCRIPTORS
from fednode.data.folder import NAMED, ClassImages, Listing
from fednode.data.images import Cache, Verdict, copies_among, examine, skip_report
from fednode.data.names import TABLES, for_layout, same, shown, unsendable
from fednode.data.official import read_folder
from fednode.data.splits import Files
from fednode.data.table import read_classes
from fednode.errors import DataError


def load(
    settings: DataSettings,
    cache: Cache | None = None,
    progress: ProgressFn = no_progress,
    *,
    fixed: bool = False,
    whole: bool = False,
) -> NodeData:
    """Return the splits of one node, as `look` does.

    Raise DataError if the data cannot be used; the message has the first fault and the number of
    the others.
    """
    problems, data = look(settings, cache, progress, fixed=fixed, whole=whole)
    if data is None:
        first, *more = [text for kind, text in problems if kind == "fault"]
        others = "1 more fault" if len(more) == 1 else f"{len(more)} more faults"
        raise DataError(first + (f" ({others}: `fednode check` lists all.)" if more else ""))
    return data


def look(
    settings: DataSettings,
    cache: Cache | None = None,
    progress: ProgressFn = no_progress,
    *,
    fixed: bool = False,
    whole: bool = False,
) -> tuple[list[Problem], NodeData | None]:
    """Return everything that is wrong with the data, and the splits; None if there is a fault.

    cache: keeps the results of examining image files; None examines every file anew. progress: how
    many files are examined. fixed: the data set does not change, so the shares of its splits are
    exact. whole: all images are test images, of one class or more.
    """
    try:
        survey = _Survey(settings.placed(), cache, progress, fixed, whole)
        data = survey.data()
    except DataError as error:
        return [fault(str(error))], None
    return [*survey.problems, *map(note, skip_report(survey.skipped))], data


@dataclass
class _Survey:
    """The way from folders to splits.

    Each step yields what is wrong; the steps after a fault are left out. fixed, whole: as `look`
    takes them. classes: the chosen ones; once files are examined, those that this node opens, with
    readable images alone. train, validation, test: the images of each class.
    """

    settings: DataSettings
    cache: Cache | None
    progress: ProgressFn
    fixed: bool
    whole: bool
    problems: list[Problem] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    classes: dict[str, ClassImages] = field(default_factory=dict)
    base: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    verdicts: Mapping[Path, Verdict] = field(default_factory=dict)
    groups: Mapping[Path, str] = field(default_factory=dict)
    train: Mapping[str, Files] = field(default_factory=dict)
    validation: Mapping[str, Files] = field(default_factory=dict)
    test: Mapping[str, Files] = field(default_factory=dict)

    def data(self) -> NodeData | None:
        """Return the splits; None if there is a fault."""
        self.listing = self._list()
        for step in (
            self._choose,
            self._check_partition,
            self._examine,
            self._group,
            self._draw,
            self._check_splits,
        ):
            self.problems += step()
            if self.texts("fault"):
                return None
        halves = self.settings.halves
        return NodeData(
            train=self._split(self.train, self.train),
            validation=self._split(self.train, self.validation),
            own=self._split(self.train, self.test),
            base=self._split(self.base, self.test) if halves else None,
            new=self._split(self.new, self.test) if halves else None,
            skipped=tuple(self.skipped),
            notes=tuple(self.texts("note")),
            warnings=tuple(self.texts("warning")),
            groups=self.groups,
        )

    def texts(self, kind: Kind) -> list[str]:
        return [text for of, text in self.problems if of == kind]

    def _split(self, names: Iterable[str], files: Mapping[str, Files]) -> Split:
        names = tuple(names)
        images = [Image(path, label) for label, name in enumerate(names) for path in files[name]]
        return Split(tuple(self.classes[name].display for name in names), tuple(images))

    # Classes --------------------------------------------------------------------------------------

    def _list(self) -> Listing:
        """Return the classes of the data folder, before any is chosen."""
        settings, nested = self.settings, self.settings.groups == FOLDER
        if not settings.path.strip():
            raise DataError('data.path is empty: give a folder of class folders, or "builtin".')
        root = builtin.root() if settings.path == BUILTIN else Path(settings.path)
        if settings.table:
            found = read_classes(root, Path(settings.table), settings.columns)
        else:
            found = read_folder(root, nested)
        if nested and found.source:
            raise DataError(
                f"data.groups is '{FOLDER}', and '{root}' has a published split, whose "
                f"folders are parts and classes: give {DICOM}, or a regular expression that "
                "finds the patient."
            )
        if self.whole:
            for one in found.classes:
                one.images = dict.fromkeys(one.images, "train")
        self.skipped += found.strays
        self.problems += map(note, found.notes)
        if found.source and not self.whole:
            tests = (
                f"Classes, their order and the test images are those of '{found.source}'."
                if settings.test
                else f"Classes and their order are those of '{found.source}'; data.test is 0, so "
                "its test images train."
            )
            self.problems.append(note(tests))
        return found

    def _choose(self) -> Iterator[Problem]:
        """Store the chosen classes, in their order."""
        settings, listing = self.settings, self.listing
        rename = {normalize("NFC", name): text for name, text in (settings.rename or {}).items()}
        wanted = [normalize("NFC", name) for name in settings.classes or ()]
        for one in listing.classes:
            one.text = rename.get(one.name, one.text)
            if settings.classes is None or one.name in wanted:
                self.classes[one.name] = one
        names = tuple(self.classes)
        self.base, self.new = splits.halves(names) if settings.halves else (names, ())
        faults = list(self._name_faults(wanted, rename))
        if len(names) < (1 if self.whole else 2) and not faults:
            faults.append(
                f"'{listing.root}' gives {len(names)} class to tell apart "
                f"({', '.join(names) or 'none'}); it takes at least 2."
            )
        trains = {name: one.of("train") for name, one in self.classes.items()}
        faults += [_empty_class(one) for name, one in self.classes.items() if not trains[name]]
        yield from map(fault, faults)
        if names and all(re.fullmatch(r"n?\d+", one.display) for one in self.classes.values()):
            yield note(
                "The classes are numbers or codes, which say nothing to the model: give them "
                f'names, such as data.rename: {{"{names[0]}": healthy}}.'
            )

    def _name_faults(self, wanted: Sequence[str], rename: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the names of classes."""
        settings, every = self.settings, [one.name for one in self.listing.classes]
        if settings.classes is None and not self.listing.source and not settings.table:
            yield from _no_classes(self.listing)
        for key, names in (("classes", wanted), ("rename", rename)):
            for name in names:
                if name not in every:
                    yield _unknown_class(key, name, every, self.listing.root)
        repeated = sorted({name for name in wanted if wanted.count(name) > 1})
        if repeated:
            yield f"data.classes names '{repeated[0]}' more than once."
        seen = dict[str, str]()
        for name, one in self.classes.items():
            if name in rename and not one.text.strip():
                yield f"data.rename gives the class '{name}' an empty name."
            elif rename and (other := seen.setdefault(same(one.display), name)) != name:
                # Without data.rename a published list may give two folders one name.
                yield (
                    f"data.rename gives the classes '{other}' and '{name}' the same name "
                    f"'{one.display}': put their images into one folder, or give them two names."
                )
            if why := unsendable(one.display):
                yield (
                    f"The class '{shown(one.name)}' {why}: rename its folder, or give it "
                    "another name with data.rename."
                )

    # The part of this node ------------------------------------------------------------------------

    def _check_partition(self) -> Iterator[Problem]:
        partition, classes = self.settings.partition, len(self.base)
        if partition.how == "none":
            return
        if partition.index is None or partition.count is None:
            yield fault(
                f'data.partition.how is "{partition.how}" but index and count are not set: give '
                "both, or start the node with a peers.yaml, whose order fills them in."
            )
        elif partition.how == "classes" and partition.count > classes:
            yield fault(
                f"data.partition.count is {partition.count}, but there are only {classes} classes "
                "to divide: use fewer nodes or more classes."
            )

    def _block(self) -> tuple[str, ...]:
        """Return the base classes that this node holds."""
        partition = self.settings.partition
        if partition.how != "classes":
            return self.base
        count = partition.count or 1
        blocks = splits.blocks(len(self.base), count, len(self.base) // count)
        return tuple(self.base[label] for label in blocks[partition.index or 0])

    def _examine(self) -> Iterator[Problem]:
        """Keep the readable images of the classes that this node opens; record what is skipped."""
        opened = (*self.base, *self.new) if self.settings.halves else self._block()
        paths = [path for name in opened for path in self.classes[name].images]
        if self.settings.path == BUILTIN:
            self.verdicts = builtin.examine(paths)
        else:
            self.verdicts = examine(paths, self.settings.window, self.cache, self.progress)
        faults = {path: why for path in paths if (why := self.verdicts[path].fault) is not None}
        closed = [path for path, why in faults.items() if DESCRIPTORS in why]
        if closed:
            yield fault(f"{len(closed)} images, such as '{closed[0]}', wait: {DESCRIPTORS}.")
            return
        yield from self._odd_images(paths)
        self.classes = {name: self.classes[name] for name in opened}
        for one in self.classes.values():
            bad = [(path, faults[path]) for path in one.images if path in faults]
            one.images = {path: part for path, part in one.images.items() if path not in faults}
            self.skipped += [*one.others, *bad]
            good = len(one.of("train"))
            if not good:
                path, why = bad[0]
                yield fault(
                    f"{one.title} holds no readable image: all {len(bad)} were "
                    f"skipped, such as '{path.name}' ({why})."
                )
            elif good == 1 and self.settings.test and not (self.whole or self.listing.source):
                yield fault(
                    f"{one.title} holds 1 readable image; a test split needs at "
                    "least 2: add images, or set data.test to 0."
                )

    def _odd_images(self, paths: Sequence[Path]) -> Iterator[Problem]:
        """Yield notes on images that are used, and may not show what they should."""
        several = [path for path in paths if self.verdicts[path].frames > 1]
        if several:
            yield note(
                f"DICOM files with several frames: {len(several)}, such as '{several[0]}' "
                f"({self.verdicts[several[0]].frames} frames). The middle frame of each is used."
            )
        constant = [path for path in paths if self.verdicts[path].constant]
        if constant:
            yield note(
                f"Images of one colour throughout, in which the model sees nothing: "
                f"{len(constant)}, such as '{constant[0]}'. data.window sets which values of a "
                "grey image become black and white."
            )

    def _group(self) -> Iterator[Problem]:
        """Store the patients of the readable images; yield a fault if data.groups finds none."""
        how = self.settings.groups
        images = {path: one.path for one in self.classes.values() for path in one.images}
        self.groups = groups.find_groups(how, self.listing.root, images, self.verdicts)
        if how is None or not images:
            return
        unknown = [path for path in images if path not in self.groups]
        if len(unknown) == len(images):
            yield fault(
                f"data.groups is '{how}', and it finds no patient of any image, such as "
                f"'{unknown[0]}': give {FOLDER}, {DICOM}, or a regular expression that "
                "finds the patient in the path."
            )
        patients = len(set(self.groups.values())) + len(unknown)
        alone = f"; {len(unknown):,} of them have one image, whose patient is not known"
        yield note(
            f"The images are of {patients:,} patients by data.groups ({how})"
            f"{alone if unknown else ''}."
        )

    # Test, validation and training images ---------------------------------------------------------

    @property
    def _by_content(self) -> bool:
        """Whether a hash of content or patient decides on each image (splits.py)."""
        changes = not self.fixed and self.settings.path != BUILTIN
        return changes or self.settings.groups is not None

    def _draw(self) -> Iterator[Problem]:
        """Store the test, validation and training images of each class."""
        settings, partition = self.settings, self.settings.partition
        if self.whole:
            self.test = {name: splits.in_order(one.images) for name, one in self.classes.items()}
            self.train = self.validation = dict.fromkeys(self.test, ())
            return
        yield from self._draw_tests()
        own = {name: self._training_pool(self.classes[name]) for name in self._block()}
        if partition.how == "dirichlet":
            images, count = sum(map(len, own.values())), partition.count or 1
            if count > images:
                yield fault(
                    f"data.partition.count is {count}, but there are only {images} training images "
                    "to divide: use fewer nodes or more images."
                )
                return
            parts = splits.dirichlet(own, count, partition.alpha, settings.seed)
            own = parts[partition.index or 0]
        pools, shots = self._draw_validation(own), settings.shots
        self.train = {name: files[:shots] if shots else files for name, files in pools.items()}
        yield from self._compare_with_settings(pools)

    def _draw_tests(self) -> Iterator[Problem]:
        """Store the test images of each class: the published ones, or drawn ones."""
        share, classes = self.settings.test, self.classes
        images = {name: one.of("train") for name, one in classes.items()}
        if self.listing.source:
            self.test = {name: one.of("test") if share else () for name, one in classes.items()}
        elif not self._by_content:
            draw = splits.draw_test
            self.test = {name: draw(files, name, share) for name, files in images.items()}
        else:
            test_place = partial(splits.place, seed=splits.TEST_SEED, purpose="test")
            self.test = self._held_out(images, share, test_place)
            one = [name for name, files in images.items() if len({*map(self._unit, files)}) == 1]
            if one and share:
                yield note(
                    f"No image of {len(one)} classes, such as '{one[0]}', is tested: all images of "
                    "the class are of one patient, or copies of one image."
                )

    def _training_pool(self, one: ClassImages) -> Files:
        """Return a class's images that no test takes, in the order in which training takes them."""
        settings, tested = self.settings, set(self.test[one.name])
        files = [path for path in one.of("train") if path not in tested]
        if self.listing.source and not settings.test:
            files += [*one.of("test"), *(() if settings.validation else one.of("val"))]
        if not self._by_content:
            return splits.shuffle(files, one.name, settings.seed)

        def place(path: Path) -> float:
            return splits.place(self.verdicts[path].digest, settings.seed, "train")

        return tuple(sorted(splits.in_order(files), key=place))

    def _unit(self, path: Path) -> str:
        """Return what an image is drawn by: its patient, or its content."""
        if self.settings.groups is not None and path in self.groups:
            return f"patient {self.groups[path]}"
        return self.verdicts[path].digest

    def _held_out(
        self, classes: Mapping[str, Files], share: float, place: Callable[[str], float]
    ) -> dict[str, Files]:
        """Return the images of each class that a hash, `place`, keeps from training."""
        units = [[self._unit(path) for path in files] for files in classes.values()]
        kept = splits.held_out(units, share, place)
        return {
            name: splits.in_order(path for path in files if self._unit(path) in kept)
            for name, files in classes.items()
        }

    def _draw_validation(self, own: Mapping[str, Files]) -> dict[str, Files]:
        """Store the validation images of each class; return the rest.

        Published validation images are used by nodes that have all images of their classes. Nodes
        that share classes draw theirs from their own images, so that no two nodes have the same.
        """
        share, seed = self.settings.validation, self.settings.seed
        dealt = self.settings.partition.how == "dirichlet"
        published = {name: self.classes[name].of("val") for name in own if share and not dealt}
        kept = {name: files for name, files in published.items() if files}
        drawn = {name: files for name, files in own.items() if name not in kept}
        if dealt or not self._by_content:
            kept |= {name: splits.draw_validation(files, share) for name, files in drawn.items()}
        else:  # those of the highest places
            kept |= self._held_out(
                drawn, share, lambda unit: 1.0 - splits.place(unit, seed, "train")
            )
        self.validation = {name: kept[name] for name in own}
        rest = {}
        for name, files in own.items():
            validating = set(kept[name])
            rest[name] = tuple(path for path in files if path not in validating)
        return rest

    def _compare_with_settings(self, pools: Mapping[str, Files]) -> Iterator[Problem]:
        """Yield how the training images differ from what the settings ask for."""
        shots, train = self.settings.shots, self.train
        few = [name for name, files in train.items() if len(files) < shots]
        if few:
            least = min(len(train[name]) for name in few)
            yield note(
                f"{len(few)} of {len(train)} classes {'has' if len(few) == 1 else 'have'} fewer "
                f"than {shots} training images (the fewest: {least}, first such class: "
                f"'{few[0]}'); all of them are used."
            )
        if len(train) == 1:
            yield note(
                f"This node's only class is '{next(iter(train))}': with nothing to tell it apart "
                "from, its training changes nothing."
            )
        used, there = (sum(map(len, images.values())) for images in (train, pools))
        if used < there:
            yield note(
                f"This node uses {used:,} of {there:,} training images: data.shots is {shots}; 0 "
                "takes all."
            )

    def _check_splits(self) -> Iterator[Problem]:
        """Yield which copies of images, and which patients, are in more than one split."""
        # All test images that the node opens, which with halves are those of new classes, too.
        train, test = self._split(self.train, self.train), self._split(self.test, self.test)
        validation = self._split(self.train, self.validation)
        yield from copies_among(train, test, validation, self.verdicts)
        how = self.settings.groups
        by = how or f"the DICOM tag {DICOM.partition(':')[2]}"
        cure = f"set data.groups to {DICOM}, and no patient is divided."
        for names, first, second in (
            ("training images and test images", train, test),
            ("training images and validation images", train, validation),
            ("validation images and test images", validation, test),
        ):
            both, every = groups.divided(self.groups, first, second)
            if both and (how or second is test):
                yield (fault if how else warning)(
                    f"{len(both):,} of {len(every):,} patients (by {by}) "
                    f"{'has' if len(both) == 1 else 'have'} {names}, so the accuracy does not tell "
                    "how well new patients are recognized: "
                    f"{'divide the published images by patient.' if self.listing.source else cure}"
                )
        if not self.groups and self.settings.path != BUILTIN:
            numbers = groups.numbered(one.of("train") for one in self.classes.values())
            yield from map(note, groups.numbers_note(numbers, train, test))


def _no_classes(found: Listing) -> Iterator[str]:
    """Yield why the folders are no classes: their names, or a table beside them."""
    named = [folder.path.name for folder in found.classes if for_layout(folder.name)]
    tables = [path.name for path, _ in found.strays if path.suffix.lower() in TABLES]
    parts = []
    if named:
        few = "', '".join(named[:NAMED])
        parts.append(f"its folders '{few}' are named as parts of a data set, not as classes")
    if tables:
        parts.append(f"the table '{tables[0]}' lies beside them")
    if parts:
        table = found.root / (tables[0] if tables else "FILE.csv")
        yield (
            f"'{found.root}' holds no folder for each class, it seems: {'; '.join(parts)}. If a "
            f"table names the class of each image, set data.table to '{table}'; otherwise sort the "
            "images into a folder for each class. If the folders are classes, list them in "
            "data.classes."
        )


def _unknown_class(key: str, name: str, known: Sequence[str], root: Path) -> str:
    near = get_close_matches(name, known, 1)
    hint = f"the nearest is '{near[0]}'" if near else f"there are {', '.join(known[:5])} ..."
    return f"data.{key} names '{name}', which is no class in '{root}'; {hint}."


def _empty_class(folder: ClassImages) -> str:
    if folder.source:
        return (
            f"{folder.title} has no image to train on in '{folder.path}': add the missing files, "
            "or leave the class out through data.classes."
        )
    kinds = sorted({path.suffix.lower() or "no suffix" for path, _ in folder.others})
    if any(path.is_dir() for path, _ in folder.others):
        why = (
            "no image, only folders: images are read from the class folder itself, so move them up "
            "or remove the folder."
        )
    elif kinds:
        why = (
            f"{len(folder.others)} files, and no suffix that is read ({', '.join(kinds[:NAMED])}): "
            "convert them, or leave the class out through data.classes."
        )
    else:
        why = "no image: add some, remove the folder, or leave the class out through data.classes."
    return f"{folder.title} holds {why}"
