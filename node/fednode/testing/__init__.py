"""Tests for methods outside this repository (docs/methods.md).

- `MethodContract`: inherit and give a fixture `case`, which returns a `MethodCase`. It calls the
  hooks of a method by value.
- `frame`: what a method knows of its node; for tests of a single hook.
- `LearnerContract`: inherit and give a fixture `learner`. `small_learner` makes a learner of a
  method's arrays.

A mesh of policies in virtual time is the laboratory's `fednode.lab.sim.world.World`.

It needs pytest: pip install "fednode[testing]".
"""

from __future__ import annotations

try:
    import pytest
except ImportError as missing:
    raise ImportError('fednode.testing needs pytest: pip install "fednode[testing]"') from missing

pytest.register_assert_rewrite("fednode.testing.learners", "fednode.testing.methods")

from fednode.conformance import frame  # noqa: E402
from fednode.testing.learners import LearnerContract, small_learner  # noqa: E402
from fednode.testing.methods import CONTEXT, MethodCase, MethodContract  # noqa: E402

__all__ = [
    "CONTEXT",
    "LearnerContract",
    "MethodCase",
    "MethodContract",
    "frame",
    "small_learner",
]
