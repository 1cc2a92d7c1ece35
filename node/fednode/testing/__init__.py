"""Tests for policies, objectives and transports outside this repository (docs/policies.md).

- `PolicyContract`: inherit and give a fixture `case`, which returns a `Case`.
- `LearnerContract`: inherit and give a fixture `learner`. `small_learner` makes a learner of an
  objective.
- `TransportContract`: inherit and give a fixture `make`.
- `TrackerContract`: inherit and give fixtures `kind` and `read`.
- `ClosedFormLearner`, `Hub` and `MemoryTransport`: a learner and a transport that pass these
  contracts and need neither images nor sockets.
- `World` and `Setup`: a mesh of policies in virtual time, repeatable by its seed.

It needs pytest: pip install "fednode[testing]".
"""

from __future__ import annotations

try:
    import pytest
except ImportError as missing:
    raise ImportError('fednode.testing needs pytest: pip install "fednode[testing]"') from missing

pytest.register_assert_rewrite(
    *(
        f"fednode.testing.{name}"
        for name in ("policies", "player", "learners", "trackers", "transports")
    )
)

from fednode.learn.closed_form import ClosedFormLearner  # noqa: E402
from fednode.sim.setup import Setup  # noqa: E402
from fednode.sim.world import World  # noqa: E402
from fednode.testing.learners import LearnerContract, small_learner  # noqa: E402
from fednode.testing.policies import (  # noqa: E402
    CONTEXT,
    MODES,
    Case,
    PolicyContract,
    Shapes,
)
from fednode.testing.trackers import TrackerContract  # noqa: E402
from fednode.testing.transports import TransportContract  # noqa: E402
from fednode.transports.memory import Hub, MemoryTransport  # noqa: E402

__all__ = [
    "CONTEXT",
    "MODES",
    "Case",
    "ClosedFormLearner",
    "Hub",
    "LearnerContract",
    "MemoryTransport",
    "PolicyContract",
    "Setup",
    "Shapes",
    "TrackerContract",
    "TransportContract",
    "World",
    "small_learner",
]
