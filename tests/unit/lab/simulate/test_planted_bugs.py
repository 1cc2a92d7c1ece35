"""The planted bugs that several checkers find, or that are not the only one of their checker."""

from __future__ import annotations

import pytest

from tests.simulation.test_planted_bugs import ALONE, BUGS, judge


@pytest.mark.parametrize("name", sorted({*BUGS} - {*ALONE}))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge(name, monkeypatch)
