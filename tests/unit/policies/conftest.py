"""The tiny frozen model that tests of objectives share."""

from __future__ import annotations

import pytest

from fednode.clip.model import FrozenClip
from tests.unit.policies.tiny import frozen


@pytest.fixture(scope="session")
def model() -> FrozenClip:
    return frozen()
