"""A data set: named classes with image files, split by a fixed seed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple

from fednode.core.settings import STRICT, bounded

BUILTIN: Final = "builtin"
"""The path that stands for the images that ship."""
FOLDER: Final = "folder"
DICOM: Final = "dicom:PatientID"
"""Values of data.groups that are no regular expressions."""
SHARE_MAX: Final = 0.99
"""Most of a class's images that are kept from training."""

ProgressFn = Callable[[str, int, int], None]
"""Called with the work ("encoding images"), the number of images that are done, and of how many; 0
and 0 if nothing is counted. The work has ended if all images are done, or if its name is empty."""


def no_progress(work: str, done: int, count: int) -> None:
    """Tell nobody how far work is."""


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The share of a data set that this node holds, if one folder serves many nodes."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    how: Literal["none", "classes", "dirichlet"] = "none"
    """none: all images of all classes. classes: a block of consecutive classes (of the base half
    if `halves` is true); the last node takes the remainder, too. dirichlet: a share of each
    class's training images, drawn per class."""
    index: int | None = None
    """This node's place, from 0; null: its place in peers.yaml."""
    count: int | None = None
    """The number of nodes that share the data set; null: the number of nodes in peers.yaml."""
    alpha: float = 0.3
    """Only for dirichlet: 0.1 gives most nodes few classes, 100 gives all nodes nearly equal
    shares."""

    def __post_init__(self) -> None:
        last = inf if self.count is None else self.count - 1
        bounded("data.partition.count", 1 if self.count is None else self.count, 1)
        bounded("data.partition.index", self.index or 0, 0, last)
        bounded("data.partition.alpha", self.alpha, 1e-3, 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Where the images are, and how they are split (docs/data.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    path: str = "builtin"
    """builtin (the images in the package), or a folder with one folder per class. With data.table:
    the folder of the images."""
    table: str | None = None
    """A CSV file with a line for each image: its file and its class. Its path counts from
    data.path. null: folders name the classes."""
    columns: tuple[str, str] | None = None
    """The columns of data.table that name the files and the classes, such as [id_code, diagnosis].
    null: the columns with usual names."""
    groups: str | None = None
    """What tells which images are of one patient. folder: the first folder in the class folder, or
    in data.path with data.table. dicom:PatientID: the tag. Else a regular expression over the path
    from data.path, such as person(\\d+), of which the first group counts. The images of a patient
    all train, all validate or all test. null: images are drawn singly."""
    classes: tuple[str, ...] | None = None
    """Class folders to use, by name; null: all."""
    rename: dict[str, str] | None = None
    """Other names for classes, by class folder, such as {lesion_type_1: lesion}. Nodes that mean
    the same class must call it by the same name. null: the folders' names."""
    halves: bool = False
    """true: train on the first half of the classes (rounded up) and test on both halves (CoOp's
    base-to-new protocol). Classes are sorted by the labels of a published split, else by name."""
    shots: int = 8
    """Training images per class; 0: all. A class with fewer images gives all it has. More images
    learn better and take longer to encode at the first start."""
    validation: float = 0.0
    """Share of each class's images, without the test images, that is kept from training to judge
    the rounds (guard, status)."""
    test: float = 0.2
    """Share of each class's images that is kept for evaluation, always the same images. A larger
    share measures with less noise and leaves fewer images for training. A data set with a published
    split is tested on the split's test images, whatever the share. 0: no evaluation."""
    seed: int = 1
    """Seed of the draws of training images and of Dirichlet shares."""
    domain: str = ""
    """The name in policy.domains of the domain of these images (Fed-DPT; DiPrompT with `query:
    labels`). Other policies ignore it."""
    tell_classes: bool = True
    """Whether members of the mesh see the names of this node's classes in its status. false: only
    the operator sees them, and other nodes cannot compare their class names with this node's.
    `fednode export` writes them in both cases, because prompts are used with class names."""
    window: tuple[float, float] | None = None
    """The values that become black and white in grey images of more than 8 bits and in DICOM files,
    after its rescale (Hounsfield units in CT). null: a DICOM file's own window tags, else the
    percentiles 0.5 and 99.5 of each image."""
    partition: PartitionSettings = field(default_factory=PartitionSettings)

    def __post_init__(self) -> None:
        bounded("data.shots", self.shots, 0)
        bounded("data.validation", self.validation, 0, SHARE_MAX)
        bounded("data.test", self.test, 0, SHARE_MAX)
        if self.table is not None and (self.path == BUILTIN or not self.table.strip()):
            raise ValueError(
                f"data.table is {self.table!r} with data.path {self.path!r}; give a CSV file, and "
                "the folder of its images in data.path."
            )
        if self.columns is not None and self.table is None:
            raise ValueError(
                f"data.columns is {list(self.columns)}, and there is no data.table: set it, or "
                "remove data.columns."
            )
        if self.groups is not None:
            _check_groups(self.groups, self.partition)
        if self.window is not None and not -inf < self.window[0] < self.window[1] < inf:
            raise ValueError(
                f"data.window is {list(self.window)}; give the value of black and a greater value "
                "of white, such as [-160, 240], or null."
            )

    def placed(self) -> DataSettings:
        """Return the settings with paths that count from no current folder."""
        if self.path == BUILTIN or not self.path.strip():
            return self
        path = os.path.abspath(Path(self.path).expanduser())
        table = self.table and os.path.normpath(Path(path) / Path(self.table).expanduser())
        return replace(self, path=path, table=table)


def _check_groups(groups: str, partition: PartitionSettings) -> None:
    """Raise ValueError if data.groups is no regular expression, or images are dealt out singly."""
    try:
        re.compile(groups)
    except re.error as fault:
        raise ValueError(
            f"data.groups is {groups!r}; give {FOLDER}, {DICOM} or a regular expression ({fault})."
        ) from None
    if not groups or partition.how == "dirichlet":
        raise ValueError(
            f"data.groups is {groups!r} with data.partition.how {partition.how}; it is not empty, "
            "and dirichlet deals out single images."
        )


Kind = Literal["fault", "warning", "note"]
"""fault: no node can start with the data. warning: the test accuracy is wrong."""


class Problem(NamedTuple):
    """One sentence about the data."""

    kind: Kind
    text: str


fault: Final = partial(Problem, "fault")
warning: Final = partial(Problem, "warning")
note: Final = partial(Problem, "note")


@dataclass(frozen=True, slots=True)
class Image:
    """One labelled image file; label indexes the class names of its split."""

    path: Path
    label: int


@dataclass(frozen=True, slots=True)
class Split:
    """Images, and the class names that their labels index (with '_' replaced by ' ')."""

    classes: tuple[str, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeData:
    """All splits of one node.

    Attributes:
        train, validation, own: images of the node's own classes
        base, new: test images of all base or all new classes of the data set; None without halves
        skipped: files that are not readable images, and why
        notes: sentences on deviations from the settings, such as fewer shots
        warnings: sentences on images that make the test accuracy wrong
        groups: the patient of each image, as far as it is known
    """

    train: Split
    validation: Split
    own: Split
    base: Split | None = None
    new: Split | None = None
    skipped: tuple[tuple[Path, str], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    groups: Mapping[Path, str] = field(default_factory=dict)

    @property
    def files(self) -> frozenset[Path]:
        """The image files of all splits."""
        splits = (self.train, self.validation, self.own, self.base, self.new)
        return frozenset(image.path for split in splits if split for image in split.images)

    def described(self, path: str) -> str:
        """Return a sentence that counts classes and images; path: where they are (data.path)."""
        place = "The built-in images" if path == BUILTIN else f"The images in {path}"
        sizes = [
            f"{len(split.images)} for {use}"
            for use, split in (
                ("training", self.train),
                ("validation", self.validation),
                ("testing", self.own),
                ("testing base classes", self.base),
                ("testing new classes", self.new),
            )
            if split is not None and (split.images or use == "training")
        ]
        return f"{place}: {len(self.train.classes)} classes; {', '.join(sizes)}."
