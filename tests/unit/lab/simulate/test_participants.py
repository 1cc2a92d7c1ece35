"""Meshes of which only some nodes take part in a round, under every fault of the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.lab.commands.simulate import load
from fednode.lab.simulate.scenario import draw, play
from tests.contract.seeds import seeds
from tests.simulation.test_planted_bugs import FILE

DOMAINS = "domains: [art, photo]"
PROMPTS = "shapes: {global: [4, 2], domain.art: [4, 2], domain.photo: [4, 2]}"
MESHES = {
    "mean": "{policy: {name: promptfl, participants: 2}, agrees: true}",
    "int8": "{policy: {name: promptfl, participants: 2, wire_dtype: int8}}",
    "robust": "{policy: {name: fedclip, participants: 3, merge: {rule: median}}}",
    "changes": f"{{policy: {{name: diprompt, {DOMAINS}, participants: 1}}, {DOMAINS}, {PROMPTS}, "
    "agrees: true}",
}


@pytest.mark.parametrize("seed", seeds(2, 20))
@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_checkers_hold_and_honest_meshes_end_alike(tmp_path: Path, mesh: str, seed: int) -> None:
    file = tmp_path / "some.yaml"
    faults, _ = FILE.read_text().split("meshes:\n")
    file.write_text(f"{faults}meshes: [{mesh}]\n")
    scenario, configs = load(file)
    outcome = play(scenario, draw(scenario, configs, seed))
    assert outcome.violation is None
