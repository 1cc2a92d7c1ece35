"""Three real daemons, one of which is killed in the middle and started again.

The others go on, the killed one resumes at its round with its counts, and the mesh ends well. The
learner is the closed-form one: nothing here is about images.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.mesh import LocalMesh, MeshSettings

ROUNDS = 40
LIMIT_S = 180.0
VICTIM = "node-2"
SURVIVORS = ("node-1", "node-3")


def now(mesh: LocalMesh, name: str) -> StatusReply:
    """Return what a node said last; a node at round 0 where it said nothing."""
    return mesh.members[name].status or StatusReply(name=name)


def states(mesh: LocalMesh, name: str) -> dict[str, str]:
    """Return how a node sees its peers."""
    return {peer.name: peer.state for peer in now(mesh, name).peers}


@pytest.mark.e2e
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
                now(mesh, name).round > at_death and states(mesh, name)[VICTIM] == "dead"
                for name in SURVIVORS
            ),
            LIMIT_S,
        )
        mesh.launch(VICTIM)
        await mesh.wait_for(
            lambda: mesh.members[VICTIM].answers and now(mesh, VICTIM).life != "loading", LIMIT_S
        )
        resumed = now(mesh, VICTIM)
        # What it had adopted is still there; the count of a send is stored with its round.
        assert resumed.round >= before.round
        assert sum(int(peer.shown["chosen"]) for peer in resumed.peers) >= before.round
        assert await mesh.wait_finished(LIMIT_S) == ["node-1", VICTIM, "node-3"]
        history = await mesh.history(VICTIM)
        assert [one.round for one in history] == list(range(1, ROUNDS + 1))
        assert states(mesh, "node-1") == {VICTIM: "alive", "node-3": "alive"}
    assert [one.daemon.exit_code for one in mesh.members.values()] == [0, 0, 0]
    assert [text.split(";")[0] for text in mesh.events] == [f"{VICTIM} ended with signal SIGKILL"]
