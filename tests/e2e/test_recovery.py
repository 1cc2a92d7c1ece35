"""A daemon is killed, and the others go on (tools/bench/mesh.py); small meshes, short tunings."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.learn.quadratic import STEPS
from fednode_bootstrap.mesh import LocalMesh
from tools.bench import mesh as bench_mesh

pytestmark = pytest.mark.e2e
LIMIT_S = 180.0


@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_the_others_adopt_a_round_after_a_node_was_killed_while_it_tuned(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[str, str, int]] = []
    original = LocalMesh.kill

    def kill(self: LocalMesh, name: str) -> None:
        status = self.members[name].status
        assert status is not None
        killed.append((name, status.life, status.step))
        original(self, name)

    monkeypatch.setattr(LocalMesh, "kill", kill)
    monkeypatch.setattr(bench_mesh, "LIMIT_S", LIMIT_S)
    took = await bench_mesh.recovery(tmp_path, mode, 3, False, tuning_s=0.8, before=1)
    ((name, life, step),) = killed
    assert (name, life) == ("node-3", "running")
    assert 0 < step <= STEPS // 2
    assert 0 < took < LIMIT_S


async def test_the_others_adopt_two_rounds_after_a_node_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_mesh, "LIMIT_S", LIMIT_S)
    assert 0 < await bench_mesh.recovery(tmp_path, "async", 3, False) < LIMIT_S
