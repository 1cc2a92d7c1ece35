"""Commands load the embedded model once for all tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _all_load_it_once(loaded_once: None) -> None:
    """Apply the fixture to every test of this folder."""
