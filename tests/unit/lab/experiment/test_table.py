"""Tables of an experiment: columns, means, deviations and paired differences, by other means."""

from __future__ import annotations

import csv
import itertools
import math
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fednode.errors import ConfigError
from fednode.lab.experiment import table
from fednode.lab.experiment.cells import Cell, Done, class_lines, confusion_lines, read_scores
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.settings import Experiment, MethodSettings, ProtocolSettings
from fednode.lab.experiment.table import clustered_bootstrap, rows, shown_columns
from fednode.lab.experiment.vary import MEAN, variants
from fednode.terminal.options import csv_table
from tests.unit.lab.experiment.results import classified, counted, trial

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


ALONE = MethodSettings(label="alone", policy={"name": "local"})
OURS = MethodSettings(label="ours", policy={"name": "promptfl"})
WORSE = MethodSettings(label="worse", policy={"name": "promptfl"})
MADE = trial(OURS, ALONE, WORSE, protocol={"kind": "base-to-new"}, seeds=(1, 2))


def test_a_table_shows_every_cell_literally() -> None:
    assert table.markdown_table(("method", "new, %"), [("a|b", "50.0")]) == [
        "| method | new, % |",
        "| --- | ---: |",
        r"| a\|b | 50.0 |",
    ]


def test_the_demo_gets_by_without_torch() -> None:
    code = "import sys, fednode.lab.demo.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_interval_of_equal_values_is_that_value() -> None:
    assert clustered_bootstrap([[0.25, 0.25], [0.25]], 100) == (0.25, 0.25)
    assert all(map(math.isnan, clustered_bootstrap([[], []], 100)))


def test_interval_repeats_and_contains_the_mean() -> None:
    groups = [[0.1, 0.2, 0.0], [0.3, 0.1, 0.2], [0.0, -0.1, 0.2]]
    low, high = clustered_bootstrap(groups, 2000)
    assert (low, high) == clustered_bootstrap(groups, 2000)
    assert low < statistics.mean(itertools.chain(*groups)) < high


def test_interval_has_the_width_that_theory_gives() -> None:
    """Two stages: Var = population variance of the group means / G + mean inner variance / (G m).

    With many groups the bootstrap distribution is nearly normal, so the interval is +-1.96 of it.
    """
    generator = np.random.default_rng(5)
    centres = generator.normal(0.0, 0.3, size=60)
    groups = centres[:, None] + generator.normal(0.0, 0.2, size=(60, 8))
    between = np.var(groups.mean(axis=1)) / 60
    within = np.mean(np.var(groups, axis=1)) / (60 * 8)
    expected = 2 * 1.96 * math.sqrt(between + within)
    low, high = clustered_bootstrap(groups.tolist(), 8000)
    assert high - low == pytest.approx(expected, rel=0.05)
    assert (low + high) / 2 == pytest.approx(groups.mean(), abs=0.1 * expected)


def test_seeds_that_disagree_widen_the_interval() -> None:
    apart = clustered_bootstrap([[0.0] * 5, [0.1] * 5, [0.2] * 5], 2000)
    mixed = clustered_bootstrap([[0.0, 0.1, 0.2, 0.0, 0.1]] * 3, 2000)
    assert apart[1] - apart[0] > 2 * (mixed[1] - mixed[0])


def done(method: MethodSettings, seed: int, base: list[float]) -> Done:
    scores = {"base": {f"node-{at}": one for at, one in enumerate(base)}}
    return Done(Cell(method, seed, "", "k"), {"scores": scores, "seconds": 1.0})


DONE = [
    done(ALONE, 1, [0.5, 0.6]),
    done(ALONE, 2, [0.5, 0.5]),
    done(OURS, 1, [0.7, 0.7]),
    done(OURS, 2, [0.6, 0.4]),
    done(WORSE, 1, [0.4, 0.5]),
]


def test_methods_are_compared_with_the_control_on_equal_seeds_and_nodes() -> None:
    found = {one.method: one for one in table.differences(MADE, DONE, 500)}
    assert set(found) == {"ours", "worse"}
    assert found["ours"].mean == pytest.approx((0.2 + 0.1 + 0.1 - 0.1) / 4)
    assert (found["ours"].pairs, found["ours"].seeds, found["ours"].wins) == (4, 2, 3)
    assert found["ours"].low < found["ours"].mean < found["ours"].high
    assert found["worse"].mean == pytest.approx(-0.1)
    assert found["worse"].low == pytest.approx(found["worse"].high)


def test_the_report_has_a_table_for_each_control() -> None:
    text = markdown(MADE, DONE, "command")
    assert "Less alone, in points" in text
    assert "| worse | 1 | -10.0 (-10.0 to -10.0), 0 of 2 | - | - |" in text
    both = replace(MADE, against=("ours", "worse"))
    text = markdown(both, DONE, "command")
    assert "Less ours, in points" in text
    assert "Less worse, in points" in text
    assert "Less alone" not in text
    assert not table.difference_lines(replace(MADE, against=()), DONE)


def test_left_out_domains_are_pairs_of_their_own() -> None:
    made = replace(
        MADE,
        protocol=ProtocolSettings("leave-one-domain-out", targets=("art", "photo")),
        methods=(OURS, ALONE),
    )
    ended = [
        Done(Cell(method, 1, target, "k"), {"scores": {target: {"a": value}}, "seconds": 1.0})
        for method, values in ((ALONE, (0.5, 0.5)), (OURS, (0.6, 0.9)))
        for target, value in zip(("art", "photo"), values, strict=True)
    ]
    (found,) = table.differences(made, ended, 500)
    assert (found.metric, found.pairs) == ("avg", 2)
    assert found.mean == pytest.approx(0.25)


def test_each_table_names_seeds_rounds_and_test_images() -> None:
    made, done = classified((1, 2))
    text = markdown(made, done, "command")
    lines = text.splitlines()
    assert "seeds 1, 2. Accuracy in percent, mean ± standard deviation over seeds." in text
    assert "| ours | 2 | 7 | - | - | - | 85.0 ± 0.0 |" in lines
    assert "| test images |  |  | - | - | - | 8 |" in lines
    heads = [line for line in lines if line.startswith("| method ")]
    assert len(heads) == 2
    assert all(line.startswith("| method | seeds | rounds | ") for line in heads)
    assert "| ours | 1 of 2 | 7 | " in markdown(made, done[:1], "command")


def test_one_seed_has_no_deviation_over_seeds() -> None:
    text = markdown(*classified((1,)), "command")
    assert "16 shots, fednode-mini, seed 1. Accuracy in percent.\n" in text
    assert "| ours | 1 | 7 | - | - | - | 85.0 |" in text.splitlines()
    assert "±" not in text
    assert "over seeds" not in text


def test_keys_of_tuning_in_which_methods_differ_are_named_with_each_value() -> None:
    """Defaults that a policy brings count, and a method that learns nothing does not."""
    made, done = classified((1,))
    methods = (
        MethodSettings(label="words", policy={"name": "local"}, tuning={"init_words": "a photo"}),
        MethodSettings(label="clip", policy={"name": "fedclip"}),
        MethodSettings(label="zero-shot", policy={"name": "zero-shot"}, tuning={"epochs": 9}),
    )
    text = markdown(replace(made, methods=methods, tuning={"lr": 0.5}), done, "command")
    table = text.partition("Keys of `tuning` in which the methods differ")[2].splitlines()[2:]
    keys, _, *values = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)
    words, clip = (dict(zip(keys, row, strict=True)) for row in values)
    assert (words["method"], words["init_words"], clip["init_words"]) == (
        *("words", '"a photo"', "null"),
    )
    assert (words["optimizer"], clip["optimizer"]) == ('"sgd"', '"adam"')
    assert not {"lr", "epochs"} & {*keys}
    assert "Keys of `tuning`" not in markdown(replace(made, methods=methods[1:]), done, "command")


def test_a_line_for_each_class_and_each_entry_of_a_confusion_matrix() -> None:
    _, done = classified((1, 2))
    table = list(csv.reader(csv_table(class_lines(done)).splitlines()))
    assert table[1] == ["ours", "1", "", "own", "node-01", "a|b", "4", "0.750000", "1.000000",
                        "0.750000"]  # fmt: skip
    assert table[2][5:] == ["'=c", "4", "1.000000", "0.750000", ""]
    matrix = list(csv.reader(csv_table(confusion_lines(done)).splitlines()))
    assert [int(one[-1]) for one in matrix[1:]] == [3, 1, 4, 2, 2, 4, 1, 3, 4, 4, 4]
    assert matrix[2][4:] == ["node-01", "a|b", "'=c", "1"]


METHOD = MethodSettings(label="ZeroDFL, 2 rows", policy={"name": "zerodfl"})


def test_a_cell_is_named_by_its_method_seed_domain_and_key() -> None:
    for target, part in (("photo", "photo_"), ("", "")):
        cell = Cell(METHOD, 3, target, "0123456789ab")
        assert cell.file == f"zerodfl--2-rows_seed-3_{part}0123456789ab.json"
        assert cell.title == "ZeroDFL, 2 rows, seed 3" + (", photo" if target else "")


HEAD = "method,seed,left out,test,node,accuracy,cell\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has the columns none; --scores takes a scores.csv"),
        ("method,seed\n", "has the columns method, seed; --scores takes"),
        (HEAD + "P,1,,own,a,1.5,k\n", r"line 2: accuracy is '1.5'; it must be a number from 0"),
        (HEAD + "P,1,,own,a,0.5,k\nP,1,,own,b,x,k\n", "line 3: accuracy is 'x'"),
        (HEAD + "P,1,,own,a,nan,k\n", "line 2: accuracy is 'nan'"),
    ],
)
def test_what_is_no_scores_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_scores(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_scores(tmp_path / "none.csv")
