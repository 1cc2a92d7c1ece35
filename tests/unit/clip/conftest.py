"""Twins of every kind of text tower, built once for a module."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.clip.text import TextTower
from tests.unit.clip import twins


@pytest.fixture(scope="module", params=[*twins.TEXT, *twins.VARIANTS])
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a kind, a model of it, open_clip's tokenizer for it, and the tower."""
    kind = request.param
    model, tokenizer = twins.twin(kind, tmp_path_factory.mktemp("tokenizer"))
    return kind, model, tokenizer, TextTower(model, tokenizer, kind)
