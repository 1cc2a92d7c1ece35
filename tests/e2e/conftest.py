"""The command `fednode`, typed in the tests' own process, which has torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commands.run import Fednode


@pytest.fixture
def fednode(capsys: pytest.CaptureFixture[str]) -> Fednode:
    return Fednode(capsys)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is HOME and where commands are typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
