"""The command lines of the mesh and the demo hand on what they were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fednode.lab.commands.mesh import mesh
from fednode.lab.demo import demo as demos
from fednode.lab.demo.demo import CONTROL, DemoOptions
from fednode_bootstrap import local
from fednode_bootstrap.mesh import MeshSettings


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Catch the options of a run instead of running."""
    caught: list[Any] = []

    async def run(options: object, *_: object, **more: object) -> int:
        caught.extend((options, *more.items()))
        return 7

    monkeypatch.setattr(demos, "run", run)
    monkeypatch.setattr(local, "run", run)
    return caught


def invoke(words: str) -> Any:
    return CliRunner().invoke(mesh, words.split(), standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "handed"),
    [
        ("", [MeshSettings(run_dir=local.RUNS), ("keep", False), ("stay", False)]),
        (
            "--nodes 3 --config a.yaml --set x.y=1 --set x.z=2 --rounds 9 --policy local --keep "
            "--stay --run-dir there",
            [
                MeshSettings(
                    run_dir=Path("there"),
                    nodes=3,
                    config=Path("a.yaml"),
                    # What has its own flag is stronger than --set.
                    settings=("x.y=1", "x.z=2", "rounds.max=9", "policy.name=local"),
                ),
                ("keep", True),
                ("stay", True),
            ],
        ),
        ("demo", [DemoOptions(seeds=(1, 2))]),
        ("demo --quick", [DemoOptions(seeds=(1,), rounds=demos.QUICK_ROUNDS)]),
        (
            f"demo --seeds 4,5 --rounds 9 --quick --keep --config {demos.CONFIG} --set a.b=1 "
            "--nodes 3 --out there",
            [
                DemoOptions(
                    out=Path("there"), seeds=(4,), nodes=3, rounds=9, keep=True, settings=("a.b=1",)
                )
            ],
        ),
    ],
)
def test_what_is_asked_for_is_handed_on(given: list[Any], words: str, handed: list[Any]) -> None:
    assert invoke(words).return_value == 7
    assert given == handed


def test_a_method_of_the_demo_sets_policy_seeds_and_rounds() -> None:
    asked = DemoOptions(rounds=9, settings=("a.b=1",))
    assert asked.overrides(CONTROL, 4) == (
        *("policy={name: local}", "seed=4", "data.seed=4", "a.b=1", "rounds.max=9"),
    )


def test_seeds_that_are_no_numbers_are_refused(given: list[Any]) -> None:
    found = CliRunner().invoke(mesh, ["demo", "--seeds", "one"])
    assert found.exit_code == 2
    assert "no list of whole numbers" in found.output
    assert given == []
