"""The command lines of the mesh and the demo hand on what they were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fednode.lab.commands import demo as demo_command
from fednode_bootstrap import mesh_command
from fednode_bootstrap.local import LocalOptions
from fednode_bootstrap.mesh_command import mesh
from tests.command_line import named


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Catch the options of a run instead of running."""
    caught: list[Any] = []

    async def run(options: object, *_: object) -> int:
        caught.append(options)
        return 7

    monkeypatch.setattr(demo_command, "run", run)
    monkeypatch.setattr(mesh_command, "run", run)
    return caught


def invoke(command: Any, *arguments: str) -> Any:
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def test_mesh_has_working_defaults(given: list[Any]) -> None:
    assert invoke(mesh_command.mesh).return_value == 7
    assert given == [LocalOptions()]


def test_mesh_hands_everything_on(given: list[Any]) -> None:
    words = "--nodes 3 --config a.yaml --set x.y=1 --set x.z=2 --rounds 9 --policy local --keep"
    invoke(mesh_command.mesh, *words.split(), "--stay", "--run-dir", "there")
    options = LocalOptions(
        nodes=3,
        config=Path("a.yaml"),
        settings=("x.y=1", "x.z=2"),
        rounds=9,
        policy="local",
        run_dir=Path("there"),
        keep=True,
        stay=True,
    )
    assert given == [options]
    # What has its own flag is stronger than --set.
    settings = options.mesh(Path("there")).settings
    assert settings == ("x.y=1", "x.z=2", "rounds.max=9", "policy.name=local")


def test_its_name_leads_here() -> None:
    assert named("mesh") is mesh
