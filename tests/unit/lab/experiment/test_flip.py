"""configs/experiments/flip.yaml on a small made-up tree in CoOp's layout, with its split file."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.scene import scene
from tests.unit.lab.experiment.pictures import draw
from tests.unit.lab.experiment.test_experiment import start

FILE = Path(__file__).resolve().parents[4] / "configs/experiments/flip.yaml"
CLASSES = tuple(f"class {at:02d}" for at in range(24))
BASE, NEW = CLASSES[:11:-1], CLASSES[11::-1]
"""The labels of the split have the reverse order of the names."""
METHODS = [one.label for one in load_experiment(FILE).methods]
PARTS = {"train": 18, "val": 1, "test": 3}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return caltech-101 as CoOp lays it out: 24 made-up classes, labels in reverse order."""
    root = tmp_path_factory.mktemp("coop") / "caltech-101"
    split: dict[str, list[list[Any]]] = {part: [] for part in PARTS}
    for label, name in enumerate(reversed(CLASSES)):
        for part, count in PARTS.items():
            for at in range(count):
                path = f"{name}/{part}-{at}.png"
                draw(root / "101_ObjectCategories" / path, path)
                split[part].append([path, label, name])
    (root / "split_zhou_Caltech101.json").write_text(json.dumps(split))
    return root


def test_ten_clients_share_the_base_classes_of_the_split(tree: Path) -> None:
    made = load_experiment(FILE, flags=[f"data.path={tree}"])
    place = scene(made, 1, "")
    assert len(place.clients) == 10
    assert sum((client.data.train.classes for client in place.clients), ()) == BASE
    for client in place.clients:
        assert len(client.data.train.images) == 16 * len(client.data.train.classes)
        assert all("train-" in image.path.name for image in client.data.train.images)
    base, new, own = place.tests
    assert (base.name, new.name, own.name) == ("base", "new", "own")
    for name in (client.name for client in place.clients):
        assert base.images[name].classes == BASE
        assert new.images[name].classes == NEW
        assert all("test-" in image.path.name for image in new.images[name].images)


def test_every_method_runs_from_the_one_file(
    tree: Path, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(tree, tmp_path, capsys, "--set", model, "--smoke")
    rows = json.loads((out / "report.json").read_text())["rows"]
    assert [row["method"]["label"] for row in rows] == METHODS
    policies = {one.policy["name"] for one in load_experiment(FILE).methods}
    assert {"promptfl", "fedotp", "fedpgp", "fedtpg", "zerodfl"} <= policies
    for row in rows:
        assert {"base", "new", "own"} <= set(row["figures"])


@pytest.mark.slow
def test_the_whole_setting_but_for_model_rounds_and_seeds(
    tree: Path, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten nodes, 16 shots and all test images: every row and node has its figures."""
    words = ("--set", model, "--set", "rounds=2", "--set", "seeds=[1]")
    out = run(tree, tmp_path, capsys, *words)
    rows = json.loads((out / "report.json").read_text())["rows"]
    assert [row["method"]["label"] for row in rows] == METHODS
    for row in rows:
        assert all(0 <= row["figures"][test]["mean"] <= 100 for test in ("base", "new", "own"))
    clients = scene(load_experiment(FILE, flags=[f"data.path={tree}"]), 1, "").clients
    own = {client.name: client.data.train.classes for client in clients}
    assert len(own) == 10
    assert sum(own.values(), ()) == BASE
    for client in clients:
        shots = Counter(image.label for image in client.data.train.images)
        assert shots == dict.fromkeys(range(len(client.data.train.classes)), 16)
    assert counted(out) == {
        (label, test, name): dict.fromkeys(classes, str(PARTS["test"]))
        for label in METHODS
        for name in own
        for test, classes in (("base", BASE), ("new", NEW), ("own", own[name]))
    }


def counted(out: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the test images of each class, by method, test and node."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for line in csv.DictReader((out / "classes.csv").read_text().splitlines()):
        place = (line["method"], line["test"], line["node"])
        found.setdefault(place, {})[line["class"]] = line["images"]
    return found


def run(tree: Path, out: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Path:
    """Run the file with the tiny model; return the folder of its tables."""
    code, _, err = start(capsys, FILE, *words, "--set", f"data.path={tree}", "--out", out)
    assert code == 0, err
    return out
