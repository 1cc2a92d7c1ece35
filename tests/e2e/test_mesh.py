"""Three real daemons, one of which is killed: the others go on, and it resumes at its round.

The learner is the closed-form one: nothing here is about images.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.learn.quadratic import STEPS
from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.daemons import states
from tools.bench import mesh as bench_mesh

pytestmark = pytest.mark.e2e
ROUNDS = 40
LIMIT_S = 180.0
VICTIM = "node-2"
SURVIVORS = ("node-1", "node-3")


def now(mesh: LocalMesh, name: str) -> StatusReply:
    """Return what a node said last; a node at round 0 where it said nothing."""
    return mesh.members[name].status or StatusReply(name=name)


async def test_a_mesh_outlives_the_death_of_a_node(tmp_path: Path) -> None:
    settings = MeshSettings(
        run_dir=tmp_path,
        nodes=3,
        settings=(
            "tuning.kind=closed-form",
            f"rounds.max={ROUNDS}",
            "rounds.min_interval_s=0.15",
            "membership.preset=local",
        ),
        poll_s=0.05,
    )
    async with LocalMesh(settings) as mesh:
        await mesh.wait_for(lambda: now(mesh, VICTIM).round >= 5, LIMIT_S)
        mesh.kill(VICTIM)
        before = now(mesh, VICTIM)
        at_death = max(now(mesh, name).round for name in SURVIVORS)
        await mesh.wait_for(
            lambda: all(
                now(mesh, name).round > at_death and states(now(mesh, name))[VICTIM] == "dead"
                for name in SURVIVORS
            ),
            LIMIT_S,
        )
        mesh.launch(VICTIM)
        await mesh.wait_for(
            lambda: mesh.members[VICTIM].answers and now(mesh, VICTIM).life != "loading", LIMIT_S
        )
        resumed = now(mesh, VICTIM)
        assert resumed.round >= before.round  # what it had adopted is still there
        assert await mesh.wait_finished(LIMIT_S) == ["node-1", VICTIM, "node-3"]
        history = await mesh.history(VICTIM)
        assert [one.round for one in history] == list(range(1, ROUNDS + 1))
        assert states(now(mesh, "node-1")) == {VICTIM: "alive", "node-3": "alive"}
    assert [one.daemon.exit_code for one in mesh.members.values()] == [0, 0, 0]
    assert [text.split(";")[0] for text in mesh.events] == [f"{VICTIM} ended with signal SIGKILL"]


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
