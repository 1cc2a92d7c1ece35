"""Tests for policies and objectives outside this repository (docs/policies.md).

- `PolicyContract`: inherit and give a fixture `case`, which returns a `Case`.
- `frame`: what a policy knows of its node; for tests of a method's hooks without a mesh.
- `LearnerContract`: inherit and give a fixture `learner`. `small_learner` makes a learner of an
  objective.
- `ClosedFormLearner`: a learner that passes its contract and needs no images.

A mesh of policies in virtual time is the laboratory's `fednode.lab.sim.world.World`.

It needs pytest: pip install "fednode[testing]".
"""

from __future__ import annotations

try:
    import pytest
except ImportError as missing:
    raise ImportError('fednode.testing needs pytest: pip install "fednode[testing]"') from missing

pytest.register_assert_rewrite(
    *(f"fednode.testing.{name}" for name in ("policies", "player", "learners"))
)

from fednode.learn.closed_form import ClosedFormLearner  # noqa: E402
from fednode.testing.learners import LearnerContract, small_learner  # noqa: E402
from fednode.testing.player import frame  # noqa: E402
from fednode.testing.policies import (  # noqa: E402
    CONTEXT,
    MODES,
    Case,
    PolicyContract,
    Shapes,
)

__all__ = [
    "CONTEXT",
    "MODES",
    "Case",
    "ClosedFormLearner",
    "LearnerContract",
    "PolicyContract",
    "Shapes",
    "frame",
    "small_learner",
]
