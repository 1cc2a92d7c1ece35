"""Nodes that need no open port: five daemons behind NATs, in network namespaces of this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.behind_nat import SCENARIOS
from tests.e2e.nat_mesh import LAB

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SKIPPED = 77
GUARD_S = 300


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_nodes_behind_nats(name: str, tmp_path: Path) -> None:
    words = [LAB, "with", "5", "--", sys.executable, "-m", "tests.e2e.behind_nat", name]
    words.append(tmp_path / "lab")
    done = subprocess.run(
        [str(one) for one in words], capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    if done.returncode == SKIPPED:
        pytest.skip(f"no NAT lab here: {done.stderr.strip()}")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
