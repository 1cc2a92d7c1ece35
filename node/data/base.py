"""What a data set is to fednode: named classes with image files, split by a fixed seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from node.core.settings import STRICT


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Which share of a data set this node holds, when one folder serves many nodes (trials, demos).

    how: "none" (all classes, all images), "classes" (consecutive blocks of class ids as in FedTPG's
    protocol, METHODS section 1) or "dirichlet" (image shares drawn per class).
    index, count: this node's place among how many; None is filled in from peers.yaml's order.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    how: Literal["none", "classes", "dirichlet"] = "none"
    index: int | None = None
    count: int | None = None
    alpha: float = 0.3


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Where the images are and how they are split.

    path: "builtin", or a folder with one folder per class.
    classes: names to use, in folder spelling; None for all found.
    halves: split the sorted classes into base (first half, rounded up) and new (the rest), train on
    base only and evaluate on both (CoOp's base-to-new protocol).
    shots: training images per class; 0 for all. validation: share of the training images kept for
    the guard and for status. test: share of each class's images kept for evaluation, drawn first.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    path: str = "builtin"
    classes: tuple[str, ...] | None = None
    halves: bool = False
    shots: int = 8
    validation: float = 0.0
    test: float = 0.2
    seed: int = 1
    partition: PartitionSettings = field(default_factory=PartitionSettings)


@dataclass(frozen=True, slots=True)
class Image:
    """One labelled image file; label indexes the class names of its split."""

    path: Path
    label: int


@dataclass(frozen=True, slots=True)
class Split:
    """Images with the class names that their labels index (display form: '_' read as ' ')."""

    classes: tuple[str, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class NodeData:
    """All splits of one node.

    train, validation, own: over the node's own classes. base, new: over all base or all new classes
    of the data set (None without halves). skipped: files that are no readable image, and why.
    """

    train: Split
    validation: Split
    own: Split
    base: Split | None = None
    new: Split | None = None
    skipped: tuple[tuple[Path, str], ...] = ()
