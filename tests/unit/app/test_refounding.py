"""A mesh is taken back only while nobody joined it, its node does not run, and it is the one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fednode.app.admission import register_of
from fednode.app.founding import mesh_key_file
from fednode.app.plan import NodePlan
from fednode.app.refounding import founded as before
from fednode.errors import ConfigError, StateError
from fednode.storage.disk import lock
from tests.unit.app.founders import MESH, founded, identity_of, link_to
from tests.unit.identity.people import LISTED


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlan:
    return founded(tmp_path, monkeypatch)


def test_where_nothing_was_founded_nothing_is_taken_back(tmp_path: Path, plan: NodePlan) -> None:
    assert before("other", tmp_path / "other") is None
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="is of no mesh that was founded on this machine"):
        before("other", tmp_path / "other")
    with pytest.raises(ConfigError, match="holds no settings of the mesh 'ward'"):
        before(MESH, tmp_path / "other")


def test_once_somebody_joined_it_stays(tmp_path: Path, plan: NodePlan) -> None:
    register = register_of(plan.state, identity_of(plan))
    register.enrol(LISTED["b"], MESH, "b", "127.0.0.1:9", link_to(plan, "b").token.hex())
    with pytest.raises(ConfigError, match="b joined 'ward', so it cannot be founded again"):
        before(MESH, tmp_path / MESH)
    register.revoke("b", LISTED["b"])
    with pytest.raises(ConfigError, match="a site that was removed joined 'ward'"):
        before(MESH, tmp_path / MESH)


def test_while_its_node_runs_nothing_is_deleted(tmp_path: Path, plan: NodePlan) -> None:
    made = before(MESH, tmp_path / MESH)
    assert made is not None
    running = lock(plan.state)
    with pytest.raises(StateError, match="is in use by process"):
        made.delete()
    assert mesh_key_file(MESH).exists()
    assert (tmp_path / MESH / "node.yaml").exists()
    os.close(running)
    assert made.delete() == [tmp_path / MESH / f"{name}.yaml.before" for name in ("node", "peers")]
    assert not mesh_key_file(MESH).exists()
    assert not plan.state.exists()
