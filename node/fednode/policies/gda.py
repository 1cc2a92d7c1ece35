"""gda: Gaussian discriminant analysis from nodes' class means, without gradients.

    sends     for each class, the number of its images and the sum of their unit features, to all
              members, when at least privacy.least_images images of the class changed
    keeps     the newest such statement of each member (core/rounds/statements.py)
    computes  its own classifier from its images and the statements that it keeps
              (learn/gaussian_module.py; equations in learn/gaussian.py)

`local` with `head: gda` is the same classifier without peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fednode.core.rounds.statements import StatementMethod, Statements
from fednode.core.types import Dtype, Json, Tensors
from fednode.learn import class_sums
from fednode.learn.class_sums import CLASSES_MAX, ROWS
from fednode.learn.gaussian_module import GaussianModule, GaussianSettings


@dataclass(frozen=True, slots=True)
class GDAConfig(GaussianSettings):
    """Gaussian discriminant analysis from nodes' class means, without gradients."""

    classes_max: int = 256
    """Most classes of one node that count at the others; as many as half of the nodes have, if that
    is more. Each class costs each node memory and time in each round. Of more classes those that
    other nodes have, too, count first; log and status say whose are left out."""
    wire_dtype: ClassVar[Dtype] = "float32"

    def __post_init__(self) -> None:
        GaussianSettings.__post_init__(self)
        if not 1 <= self.classes_max <= CLASSES_MAX:
            raise ValueError(
                f"policy.classes_max is {self.classes_max}; it must be from 1 to {CLASSES_MAX}, "
                "the classes that one message names."
            )


class GDA(StatementMethod):
    """The exchange of class sums; see the file's header."""

    name = "gda"
    config_type = GDAConfig
    prompts = GaussianModule
    rounds: ClassVar[Mapping[str, Json]] = {"max": 0, "min_interval_s": 60.0}
    norm_checked: ClassVar[bool] = False

    config: GDAConfig

    def statement_bytes(self, initial: Tensors) -> int:
        """Return the bytes of a statement of CLASSES_MAX classes."""
        return 4 * CLASSES_MAX * int(initial[ROWS].shape[1])

    def fault(self, statement: Tensors, initial: Tensors) -> str:
        """Return what is wrong with a peer's class sums; "" if nothing is."""
        return class_sums.rows_fault(statement, initial[ROWS].shape[1])

    def counted(self, statements: Statements) -> Statements:
        """Return the classes of each sender for which there is room."""
        return class_sums.fitting(statements, self.config.classes_max)

    def note(self, statements: Statements, counted: Statements) -> str:
        """Return whose classes have no room; "" if all have."""
        said = class_sums.left_out(statements, counted)
        if not said:
            return ""
        return (
            f"{', '.join(said)} do not count: policy.classes_max has room for "
            f"{self.config.classes_max} of a node, and a node uses {CLASSES_MAX:,} of all"
        )
