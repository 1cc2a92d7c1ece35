"""Columns of a table over several data sets, and the paper's figures beside them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from fednode.experiment.files import load_experiment
from fednode.experiment.report import markdown
from fednode.experiment.run import Cell, Done
from fednode.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.experiment.table import rows, shown_columns
from fednode.experiment.vary import MEAN, variants

CONFIGS = Path(__file__).resolve().parents[3] / "configs/experiments"
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
    made = Experiment(
        title="t",
        data=DataPart(path="/nowhere"),
        methods=methods,
        protocol=ProtocolSettings("base-to-new", datasets=("cars", "pets")),
        seeds=(1,),
    )
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
    assert figures["new, by node"].mean == pytest.approx(50.0)
    apart = statistics.stdev([40.0, 20.0])  # pets have one node, and no deviation
    assert figures["new"].over_nodes == pytest.approx(apart)


def test_each_figure_of_a_paper_stands_beside_its_column() -> None:
    paper = {"new": 76.19, "pets/new": 96.75}
    made, done = table_of(
        MethodSettings(label="ours", policy={"name": "zero-shot"}, paper=paper),
        MethodSettings(label="theirs", policy={"name": "zero-shot"}),
    )
    lines = markdown(made, rows(made, done), done, "command").splitlines()
    head = next(line for line in lines if line.startswith("| method"))
    assert head == (
        "| method | cars/new | pets/new | new | new, by node | base | H | own "
        "| paper: pets/new | paper: new |"
    )
    first = lines[lines.index(head) : lines.index("", lines.index(head))]
    found = {line.split(" | ")[0]: line.split(" | ")[-2:] for line in first}
    assert found["| ours"] == ["96.75", "76.19 |"]
    assert found["| theirs"] == ["-", "- |"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_papers_figures_in_the_files_that_ship_have_columns(file: Path) -> None:
    made = load_experiment(file)
    named = {name for one in made.methods for name in one.paper}
    known = set(shown_columns(made)) if made.protocol.kind == "base-to-new" else {"avg"}
    if made.vary:
        every = variants(made, file, False, (), Path("out"))
        known = {MEAN, *(one.title for one in every)}
    assert named <= known
