"""Columns of a table over several data sets, and the paper's figures beside them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from fednode.lab.experiment import table
from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.settings import Experiment, MethodSettings
from fednode.lab.experiment.table import rows, shown_columns
from fednode.lab.experiment.vary import MEAN, variants
from tests.unit.lab.experiment.results import counted, trial

CONFIGS = Path(__file__).resolve().parents[4] / "configs/experiments"
FILES = [file for file in sorted(CONFIGS.glob("*.yaml")) if "paper:" in file.read_text()]
SCORES = {
    "cars/base": {"node-01": 0.5, "node-02": 0.7},
    "cars/new": {"node-01": 0.4, "node-02": 0.2},
    "cars/own": {"node-01": 0.9, "node-02": 0.8},
    "pets/base": {"node-03": 0.8},
    "pets/new": {"node-03": 0.9},
    "pets/own": {"node-03": 0.7},
}


def table_of(*methods: MethodSettings) -> tuple[Experiment, list[Done]]:
    made = trial(*methods, protocol={"kind": "base-to-new", "datasets": ("cars", "pets")})
    outcome = {"scores": SCORES, "seconds": 1.0}
    return made, [Done(Cell(one, 1, "", "k"), outcome) for one in methods]


def test_means_over_data_sets_count_each_once() -> None:
    made, done = table_of(MethodSettings(label="a", policy={"name": "zero-shot"}))
    figures = rows(made, done)[0].figures
    means = {name: statistics.mean(nodes.values()) for name, nodes in SCORES.items()}
    for kind in ("base", "new", "own"):
        wanted = 50 * (means[f"cars/{kind}"] + means[f"pets/{kind}"])
        assert figures[kind].mean == pytest.approx(wanted)
    harmonic = statistics.harmonic_mean([figures["base"].mean, figures["new"].mean])
    assert figures["H"].mean == pytest.approx(harmonic)


def test_each_figure_of_a_paper_stands_beside_its_column() -> None:
    paper = {"new": 76.19, "pets/new": 96.75}
    made, done = table_of(
        MethodSettings(label="ours", policy={"name": "zero-shot"}, paper=paper),
        MethodSettings(label="theirs", policy={"name": "zero-shot"}),
    )
    lines = markdown(made, done, "command").splitlines()
    head = next(line for line in lines if line.startswith("| method"))
    assert head == (
        "| method | seeds | rounds | cars/new | pets/new | new | base | H | own "
        "| paper: pets/new | paper: new |"
    )
    first = lines[lines.index(head) : lines.index("", lines.index(head))]
    found = {line.split(" | ")[0]: line.split(" | ")[-2:] for line in first}
    assert found["| ours"] == ["96.75", "76.19 |"]
    assert found["| theirs"] == ["-", "- |"]


def test_test_images_of_a_mean_are_all_that_it_counts() -> None:
    made, done = table_of(MethodSettings(label="a", policy={"name": "zero-shot"}))
    by_node = {
        name: counted({key: [[images, 0], [0, 0]] for key in nodes}, [None, None])
        for images, (name, nodes) in enumerate(SCORES.items(), 1)
    }
    done = [Done(one.cell, {**one.outcome, "by_node": by_node}) for one in done]
    sizes = table.test_images(made, done)
    assert (sizes["cars/new"], sizes["pets/new"], sizes["new"]) == (2, 5, 7)
    assert sizes["base"] == 5
    assert "H" not in sizes
    assert table.test_images(made, table_of(*made.methods)[1]) == {}  # an older version's files


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_papers_figures_in_the_files_that_ship_have_columns(file: Path) -> None:
    made = load_experiment(file)
    named = {name for one in made.methods for name in one.paper}
    known = set(shown_columns(made)) if made.protocol.kind == "base-to-new" else {"avg"}
    if made.vary:
        every = variants(made, file, False, (), Path("out"))
        known = {MEAN, *(one.title for one in every)}
    assert named <= known
