"""Everything that an objective outside this repository imports (docs/objectives.md).

An objective says what is tuned: the prompts, their loss, and how they classify. An entry point of
the group `fednode.objectives` names the class, under the policy's name. This module imports torch.
"""

from fednode.clip.backbone import Backbone
from fednode.core.settings import STRICT, bounded
from fednode.core.types import EMPTY, Job, Tensors
from fednode.learn.context import ContextObjective
from fednode.learn.initial import context, generator
from fednode.learn.objective import (
    Answering,
    Batch,
    Classifier,
    Computed,
    Computing,
    Constant,
    Given,
    Leaves,
    Objective,
    Parameters,
    Partial,
    Plain,
    Tuning,
    Written,
)
from fednode.learn.settings import TuningSettings
from fednode.learn.texts import ClassTexts

__all__ = [
    "EMPTY",
    "STRICT",
    "Answering",
    "Backbone",
    "Batch",
    "ClassTexts",
    "Classifier",
    "Computed",
    "Computing",
    "Constant",
    "ContextObjective",
    "Given",
    "Job",
    "Leaves",
    "Objective",
    "Parameters",
    "Partial",
    "Plain",
    "Tensors",
    "Tuning",
    "TuningSettings",
    "Written",
    "bounded",
    "context",
    "generator",
]
