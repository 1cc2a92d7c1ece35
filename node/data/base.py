"""What a data set is to fednode: named classes with image files, split by a fixed seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from node.core.settings import STRICT


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Which share of a data set this node holds, when one folder serves many nodes (trials, demos).

    how: "none" (all classes, all images), "classes" (consecutive blocks of the sorted classes, of
    the base half where there are halves: classes // count each, the remainder to the last node) or
    "dirichlet" (each node a share of every class's training images, the shares drawn per class).
    index, count: this node's place, from 0, among how many; None is filled in from peers.yaml's
    order. alpha: of the Dirichlet distribution; 0.1 gives most nodes few classes, 100 gives all
    nodes nearly equal shares.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    how: Literal["none", "classes", "dirichlet"] = "none"
    index: int | None = None
    count: int | None = None
    alpha: float = 0.3

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"data.partition.count is {self.count}; it must be at least 1.")
        if self.index is not None and self.index < 0:
            raise ValueError(f"data.partition.index is {self.index}; it counts from 0.")
        if self.index is not None and self.count is not None and self.index >= self.count:
            raise ValueError(
                f"data.partition.index is {self.index} with data.partition.count {self.count}; "
                f"the last index is {self.count - 1}."
            )
        if not 1e-3 <= self.alpha <= 1e6:
            raise ValueError(
                f"data.partition.alpha is {self.alpha}; it must be between 0.001 and 1000000."
            )


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Where the images are and how they are split.

    path: "builtin", or a folder with one folder per class.
    classes: names to use, in folder spelling; None for all found.
    halves: split the sorted classes into base (first half, rounded up) and new (the rest), train on
    base only and evaluate on both (CoOp's base-to-new protocol).
    shots: training images per class; 0 for all; a class with fewer gives all it has.
    validation: share of the images of each class that are not for testing, kept from training for
    the guard and for status.
    test: share of each class's images kept for evaluation, drawn first and always the same ones.
    seed: of the draws of training images and of Dirichlet shares.
    domain: which of the mesh's domains these images are of, for methods that ask (Fed-DPT).
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    path: str = "builtin"
    classes: tuple[str, ...] | None = None
    halves: bool = False
    shots: int = 8
    validation: float = 0.0
    test: float = 0.2
    seed: int = 1
    domain: str = ""
    partition: PartitionSettings = field(default_factory=PartitionSettings)

    def __post_init__(self) -> None:
        if self.shots < 0:
            raise ValueError(f"data.shots is {self.shots}; it must be 0 (all images) or more.")
        for key, share in (("validation", self.validation), ("test", self.test)):
            if not 0.0 <= share < 1.0:
                raise ValueError(f"data.{key} is {share}; it is a share from 0 to below 1.")


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
    notes: sentences on what was done otherwise than the settings ask, such as fewer shots.
    """

    train: Split
    validation: Split
    own: Split
    base: Split | None = None
    new: Split | None = None
    skipped: tuple[tuple[Path, str], ...] = ()
    notes: tuple[str, ...] = ()
