"""The scores in docs/scores are still those of the shipped files, so that tables can go on."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import cells

ROOT = Path(__file__).resolve().parents[4]
SCORES = sorted((ROOT / "docs/scores").glob("*.csv"))
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


@pytest.mark.parametrize("scores", SCORES, ids=lambda path: path.stem)
def test_the_cells_of_the_first_seed_are_there(
    scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that is new or has another default must not give old cells other names."""
    for domain in DOMAINS:
        for folder in ("data/PACS", "data/styled"):
            (tmp_path / folder / domain).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with scores.open(encoding="utf-8", newline="") as lines:
        known = {(row["method"], row["cell"]) for row in csv.DictReader(lines)}
    file = ROOT / "configs/experiments" / f"{scores.stem}.yaml"
    wanted = cells(load_experiment(file, False, ("seeds=[1]",)))
    missing = {one.method.label for one in wanted if (one.method.label, one.key) not in known}
    assert missing == set()
