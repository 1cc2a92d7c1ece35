"""`fednode experiment` from file to tables: settings, resumption, figures, faults."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from fednode.cli import main
from fednode.core.types import Tensors
from fednode.errors import DataError
from fednode.lab.experiment import run
from fednode.lab.experiment.cells import Cell, Outcome
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.settings import Experiment
from fednode.lab.simulate.ends import consensus_distance
from fednode.learn.privacy import epsilon
from tests.unit.lab.experiment.pictures import CLASSES, DOMAINS, domains

CONFIGS = Path(__file__).resolve().parents[4] / "configs/experiments"
FILES = sorted(CONFIGS.glob("*.yaml"))
# Each protocol, method and option is in one of these files. The runs of the others are slow tests.
QUICK = {
    *("byzantine", "byzantine-others", "caltech-base-to-new", "diprompt-parts", "feddpt-parts"),
    *("pacs-examined", "pacs-in-domain", "pacs-leave-one-out", "plan-parts", "privacy"),
    *("zerodfl", "zerodfl-beyond"),
}
SETS = (
    *("caltech-101", "oxford_flowers", "oxford_pets", "fgvc_aircraft", "dtd"),
    *("ucf101", "food-101", "stanford_cars", "sun397"),
)


def write(path: Path, images: Path, **changed: Any) -> Path:
    tree: dict[str, Any] = {
        "title": "a trial",
        "data": {"path": str(images), "shots": 2, "test_images": 2},
        "protocol": {"kind": "in-domain"},
        "rounds": 2,
        "seeds": [1, 2],
        "curve_every": 1,
        "tuning": {"batch_size": 4, "context_length": 3},
        "methods": [
            {"label": "zero-shot", "policy": "zero-shot"},
            "local",
            {"label": "ours", "policy": {"name": "zerodfl", "recipients": 2}},
            {"label": "mean", "policy": "promptfl", "tuning": {"epochs": 1}},
        ],
        **changed,
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def start(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["experiment", *map(str, arguments), "--workers", "1"])
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


def test_tables_curves_and_a_second_start(
    tmp_path: Path, folder: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path / "trial.yaml", folder), tmp_path / "out"
    own = f"cache.folder={tmp_path / 'cache'}"
    code, shown, _ = start(capsys, file, "--set", model, "--set", own, "--out", out)
    assert code == 0
    assert (tmp_path / "cache/features.db").is_file()
    assert "8/8 mean, seed 2" in shown
    report = json.loads((out / "report.json").read_text())
    rows = {row["method"]["label"]: row for row in report["rows"]}
    # Every figure again, from the file of single scores.
    scores = read(out / "scores.csv")
    for label, row in rows.items():
        means = []
        for seed in ("1", "2"):
            mine = [
                float(one["accuracy"])
                for one in scores
                if (one["method"], one["seed"]) == (label, seed)
            ]
            assert len(mine) == len(DOMAINS)
            means.append(100 * sum(mine) / len(mine))
        figure = row["figures"]["avg"]
        assert figure["mean"] == pytest.approx(sum(means) / 2, abs=1e-3)
        assert figure["over_seeds"] == pytest.approx(stdev(means), abs=1e-3)
        assert f"| {label} |" in shown
    assert rows["zero-shot"]["traffic"] is None
    # Payload: prompts of 3 x 32 numbers; float16 to two of three, float32 to all.
    traffic = {label: rows[label]["traffic"] for label in ("local", "ours", "mean")}
    assert traffic["local"]["payload"] == 0
    assert traffic["ours"]["payload"] == 2 * 4 * 2 * (3 * 32 * 2)
    assert traffic["mean"]["payload"] == 2 * 4 * 3 * (3 * 32 * 4)
    assert traffic["mean"]["payload"] < traffic["mean"]["serialized"] < traffic["mean"]["wire"]
    assert rows["mean"]["consensus"] == 0.0 < rows["ours"]["consensus"]
    by_class, mistakes = read(out / "classes.csv"), read(out / "confusion.csv")
    for one in scores:  # the accuracy again, from the confusion matrix and from the sensitivities
        place = {key: one[key] for key in ("method", "seed", "left out", "test", "node")}
        counts = [row for row in mistakes if place.items() <= row.items()]
        assert {row["true class"] for row in counts} == set(CLASSES)
        right = [
            int(row["images"]) for row in counts if row["true class"] == row["predicted class"]
        ]
        total = sum(int(row["images"]) for row in counts)
        assert float(one["accuracy"]) == pytest.approx(sum(right) / total, abs=1e-6)
        found = [row for row in by_class if place.items() <= row.items()]
        images = [int(row["images"]) for row in found]
        shares = [float(row["sensitivity"]) for row in found]
        weighted = sum(n * x for n, x in zip(images, shares, strict=True)) / total
        assert float(one["accuracy"]) == pytest.approx(weighted, abs=1e-5)
    curves = read(out / "curves.csv")
    assert {one["round"] for one in curves if one["method"] == "ours"} == {"1", "2"}
    # Cells of a scores file are not run again.
    rows_held = (out / "scores.csv").read_text().splitlines(keepends=True)
    held = "".join(row for row in rows_held if not row.startswith("ours,"))
    (tmp_path / "held.csv").write_text(held)
    two = ("--out", tmp_path / "two", "--scores", tmp_path / "held.csv")
    _, shown, _ = start(capsys, file, "--set", model, *two)
    assert "6 of 8 runs were there from before" in shown
    assert (tmp_path / "two/scores.csv").read_bytes() == (out / "scores.csv").read_bytes()
    # Started again, nothing is run; with another setting of one method, that one alone.
    cells = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    code, shown, _ = start(capsys, file, "--set", model, "--out", out)
    assert "8 of 8 runs were there from before" in shown
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == cells
    tree = yaml.safe_load(file.read_text())
    tree["methods"][3]["tuning"]["lr"] = 0.5
    file.write_text(yaml.safe_dump(tree))
    code, shown, _ = start(capsys, file, "--set", model, "--out", out)
    assert "6 of 8 runs were there from before" in shown


KILLED = """
import multiprocessing, os, signal

def work(told, begun):
    from fednode.lab.experiment.executors import prepare
    prepare(begun, ("4", "6"))
    told.send(os.environ["CUDA_VISIBLE_DEVICES"])
    signal.pause()

if __name__ == "__main__":
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    begun = context.Value("i", 1)
    context.Process(target=work, args=(there, begun)).start()
    print(here.recv(), begun.value, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_of_an_experiment_that_is_killed_end_with_it(tmp_path: Path) -> None:
    """The second process, on the second GPU."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    ran = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=180, text=True)
    assert ran.returncode == -signal.SIGKILL, "and its output ended, which its process held too"
    assert ran.stdout == "6 2\n"


def path_for(file: Path, folder: Path) -> Path:
    """Return which of the drawn folders an experiment is to run on."""
    tree = yaml.safe_load(file.read_text())
    if tree["protocol"]["kind"] != "base-to-new":
        return folder / "domains"
    several = "protocol.datasets" in tree.get("vary", {}) or tree["protocol"].get("datasets")
    return folder / "sets" if several else folder / "sets/dtd"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("all")
    domains(root / "domains")
    names = tuple(f"class {at:02d}" for at in range(12))
    domains(root / "sets", SETS, 3, names[:4])
    domains(root / "sets", ["dtd"], 3, names)  # alone it is shared out among five clients
    return root


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_every_file_that_ships_is_valid(file: Path, smoke: bool) -> None:
    experiment = load_experiment(file, smoke=smoke)
    tree = yaml.safe_load(file.read_text())
    wanted = {**tree, **(tree["smoke"] if smoke else {})}
    assert experiment.rounds == wanted["rounds"]
    assert list(experiment.seeds) == wanted["seeds"]
    assert len(experiment.methods) == len(wanted["methods"])


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[] if file.stem in QUICK else [pytest.mark.slow])
        for file in FILES
    ],
)
def test_every_file_that_ships_runs_small(
    file: Path,
    tmp_path: Path,
    everything: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same file on other images with another model: two lines are changed."""
    changed = ["--set", f"data.path={path_for(file, everything)}", "--set", model]
    if "classes" in yaml.safe_load(file.read_text())["data"]:
        changed += ["--set", "data.classes=null"]
    if "targets" not in str(changed) and path_for(file, everything).name == "domains":
        changed += ["--set", "protocol.targets=[photo]"]
    if "data.path" in load_experiment(file).vary:
        changed += ["--set", f"vary={{data.path: [{path_for(file, everything)}]}}"]
    if file.stem == "feddpt-parts":  # the paper's table 7
        changed += ["--set", "protocol.clients=8", "--set", "protocol.alpha=0.5"]
    code, shown, err = start(capsys, file, "--smoke", *changed, "--out", tmp_path)
    assert code == 0, shown + err
    labels = [one.label for one in load_experiment(file, smoke=True).methods]
    for label in labels:
        assert f"\n| {label} | " in shown
    cells = list(tmp_path.rglob("cells/*.json"))
    assert cells
    for path in cells:
        assert json.loads(path.read_text()).get("warnings", []) == []


def test_consensus_distance_is_the_root_mean_square_from_the_mean() -> None:
    prompts = [Tensors({"a": [0.0, 3.0], "b": [x]}) for x in (1.0, 2.0, 6.0)]
    assert consensus_distance(prompts) == pytest.approx(((4 + 1 + 9) / 3) ** 0.5)
    assert consensus_distance(prompts[:1] * 2) == 0.0


def test_privacy_is_in_the_report_and_curves_are_drawn(
    tmp_path: Path, folder: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("dp_accounting")
    methods = [
        "promptfl",
        {"label": "blurred", "policy": "promptfl", "privacy": {"clip": 1.0, "noise": 2.0}},
    ]
    asked = {"methods": methods, "seeds": [1], "rounds": 3, "curve_every": 0}
    file, out = write(tmp_path / "t.yaml", folder, **asked), tmp_path / "out"
    code, shown, err = start(capsys, file, "--set", model, "--out", out, "--plot")
    assert code == 0, err
    spent = epsilon([(2.0, 3)], 1e-5)
    assert f"\n| blurred | 1 | 3 | 1 | 2 | {spent:.3g} | 1e-05 |" in shown
    assert "| promptfl | 1 | 3 | 1 |" not in shown
    accuracies = [row for row in read(out / "curves.csv") if "accuracy" in row["quantity"]]
    assert {row["round"] for row in accuracies} == {"1", "2", "3"}
    drawn = np.asarray(Image.open(out / "curves.png").convert("RGB"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 10, "nothing is on it"


def four_cells(place: Path, folder: Path) -> Path:
    """Return an experiment of four cells, in two folders."""
    return write(place / "t.yaml", folder, methods=["local"], vary={"data.shots": [1, 2]})


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_value_whose_cells_fail_gives_exit_code_2_wherever_it_stands(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wrong: int,
) -> None:
    tried = []
    outcome = {"scores": {"photo": {"a": 0.5, "b": 1.0}}, "seconds": 3.0}

    def work(experiment: Experiment, cell: Cell) -> Outcome:
        tried.append(cell)
        if experiment.data.shots == wrong:
            raise DataError("no images.")
        return outcome

    monkeypatch.setattr(run, "_outcome", work)
    code, shown, _ = start(capsys, four_cells(tmp_path, folder), "--out", tmp_path / "out")
    assert (code, len(tried)) == (2, 4)
    assert "local, seed 2: failed: no images." in shown
    assert "local, seed 2: photo 75.0 in 3 s" in shown
    assert len([*(tmp_path / "out").rglob("cells/*")]) == 2


def test_a_command_that_is_ended_says_how_to_go_on(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(run, "_outcome", work)
    # A test suite in the background inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = start(capsys, four_cells(tmp_path, folder), "--out", tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert re.search(r"0 of \d runs are kept; the same command goes on from there\.", err)
    assert not [*(tmp_path / "out").rglob("cells/*")]
