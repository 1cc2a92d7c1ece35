"""The policies that `fednode init` recommends, with their tuning: the best in measurements.

The searches of configs/experiments (search-same, search-classes, search-domains) measured every
policy at several learning rates and starts, with the same number of gradient steps, on images that
no published table tests. README shows their figures. The rule, fixed before the last search was
run: the highest accuracy; of the policies that are less than one point behind it, the one whose
tuning takes the least time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ROUNDS: Final = 50
BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A policy, and the tuning with which it was measured, where it is not the policy's own."""

    policy: str
    tuning: Mapping[str, Any] = field(default_factory=dict)


def _measured(policy: str, **tuning: float | str) -> Recommendation:
    return Recommendation(policy, {"epochs": 1, "batch_size": BATCH, **tuning})


CASES: Final[Mapping[str, Recommendation]] = {
    "same-classes": _measured("promptfl", lr=0.01),
    "other-classes": _measured("fedpgp", lr=0.003),
    "other-domains": _measured("promptfl", lr=0.01),
}
"""Recommended by what peers' images have in common with a node's own (`--others`)."""
RECOMMENDED: Final = _measured("promptfl", lr=0.01)
"""For a mesh of which this is not known: with one tuning for all three cases, only FedMaPLe, whose
step takes longer, has a higher mean over them. It is not the built-in policy, which a node runs
whose settings name none (fednode.settings.read.POLICY)."""
