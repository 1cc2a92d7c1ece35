"""`fednode demo` hands its options on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fednode.lab.commands import demo as demo_command
from fednode.lab.demo import demo
from fednode.lab.demo.cells import CONTROL
from fednode.lab.demo.demo import DemoOptions
from fednode_bootstrap import mesh_command
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


def test_demo_has_working_defaults(given: list[Any]) -> None:
    assert invoke(demo_command.demo).return_value == 7
    assert given == [DemoOptions()]
    assert given[0].seeds == (1, 2)
    assert demo.CONFIG.is_file()


def test_demo_hands_everything_on(given: list[Any]) -> None:
    words = f"--seeds 4,5 --rounds 9 --quick --keep --config {demo.CONFIG} --set a.b=1 --nodes 3"
    invoke(demo_command.demo, *words.split(), "--out", "there")
    assert given == [
        DemoOptions(
            out=Path("there"),
            seeds=(4, 5),
            nodes=3,
            rounds=9,
            keep=True,
            quick=True,
            settings=("a.b=1",),
        )
    ]
    assert given[0].seeds_run == (4,)
    assert given[0].overrides(CONTROL, 4) == (
        *("policy={name: local}", "seed=4", "data.seed=4", "rounds.max=9", "a.b=1"),
    )


def test_seeds_that_are_no_numbers_are_refused(given: list[Any]) -> None:
    found = CliRunner().invoke(demo_command.demo, ["--seeds", "one"])
    assert found.exit_code == 2
    assert "no list of whole numbers" in found.output
    assert given == []


def test_its_name_leads_here() -> None:
    assert named("demo") is demo_command.demo
