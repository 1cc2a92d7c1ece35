"""Seeds of a test: a few in the default suite, and the others as slow tests."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, every: int) -> list[Any]:
    """Return the seeds 0 to every - 1; those from `quick` on are slow tests."""
    slow = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, every))
    return [*range(quick), *slow]
