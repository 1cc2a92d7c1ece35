"""PLAN on a tiny CLIP: its towers, an objective, and drawn prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.policies.plan import PlanConfig
from fednode.policies.plan import PlanPrompts as Objective
from tests.unit.policies.tiny import (
    drawn,
    tuning,
)

TOWERS = {"text": (2, 3, 32), "visual": (2, 3, 32)}


def objective(model: FrozenClip, **set_: Any) -> Objective:
    set_ = {"description": "name", **set_}
    return Objective(model, tuning(), PlanConfig(reduction=8, **set_))


def some(seed: int) -> Tensors:
    return drawn(Tensors({name: np.zeros(shape) for name, shape in TOWERS.items()}), seed)
