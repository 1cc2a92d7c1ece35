"""`kill -9` at random instants loses at most the round in flight, and every life goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
CLOSED = ("--set", "tuning.kind=closed-form", "--set", "rounds.start.peers=0")
ENDLESS = ("--set", "rounds.max=0")


def killed(folder: Path, lives: int, seed: int, longest_s: float, *words: str) -> dict[str, Any]:
    given = [str(folder), str(lives), str(seed), str(longest_s)]
    command = [sys.executable, "-m", "tests.e2e.kills", *given, *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3000)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    print(found)
    return found


def test_ten_lives(tmp_path: Path) -> None:
    found = killed(tmp_path, 10, 1, 3.0, *CLOSED, *ENDLESS)
    assert found["wrong"] == []
    assert found["lives_with_progress"] >= 4


@pytest.mark.slow
def test_a_thousand_lives(tmp_path: Path) -> None:
    found = killed(tmp_path, 1000, 2, 0.2, *CLOSED, *ENDLESS)
    assert found["wrong"] == []
    assert found["lives_with_progress"] >= 300


@pytest.mark.slow
def test_thirty_lives_with_torch(tmp_path: Path) -> None:
    words = ("--set", "rounds.start.peers=0", "--set", "tuning.threads=1", "--set", "data.shots=2")
    found = killed(tmp_path, 30, 3, 20.0, *words, *ENDLESS)
    assert found["wrong"] == []
    assert found["lives_with_progress"] >= 10
