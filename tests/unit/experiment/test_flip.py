"""configs/experiments/flip.yaml on a small made-up tree in CoOp's layout, with its split file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fednode.cli import main
from fednode.experiment.files import load_experiment
from fednode.experiment.scene import scene
from tests.unit.clip import tiny
from tests.unit.experiment.pictures import draw

FILE = Path(__file__).resolve().parents[3] / "configs/experiments/flip.yaml"
CLASSES = tuple(f"class {at:02d}" for at in range(24))
PARTS = {"train": 18, "val": 1, "test": 3}


@pytest.fixture(autouse=True)
def _threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


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
    order = tuple(reversed(CLASSES))
    assert len(place.clients) == 10
    assert sum((client.data.train.classes for client in place.clients), ()) == order[:12]
    for client in place.clients:
        assert len(client.data.train.images) == 16 * len(client.data.train.classes)
        assert all("train-" in image.path.name for image in client.data.train.images)
    base, new, own = place.tests
    assert (base.name, new.name, own.name) == ("base", "new", "own")
    for name in (client.name for client in place.clients):
        assert base.images[name].classes == order[:12]
        assert new.images[name].classes == order[12:]
        assert all("test-" in image.path.name for image in new.images[name].images)


def test_every_method_runs_from_the_one_file(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = tiny.register(tmp_path, {"context_length": 77})
    weights = tmp_path / "weights.safetensors"
    save_file(dict(tiny.clip(1, context_length=77).state_dict()), weights)
    model = f"model={{name: {name}, pretrained: {weights}}}"
    arguments = [str(FILE), "--smoke", "--set", f"data.path={tree}", "--set", model]
    with pytest.raises(SystemExit) as ended:
        main(["experiment", *arguments, "--out", str(tmp_path / "out"), "--workers", "1"])
    shown = capsys.readouterr()
    assert not ended.value.code, shown.err
    rows = {
        row["method"]["label"]: row
        for row in json.loads((tmp_path / "out/report.json").read_text())["rows"]
    }
    wanted = [one.label for one in load_experiment(FILE).methods]
    assert list(rows) == wanted
    policies = {one.policy["name"] for one in load_experiment(FILE).methods}
    assert {"promptfl", "fedotp", "fedpgp", "fedtpg", "zerodfl"} <= policies
    for row in rows.values():
        assert {"base", "new", "own"} <= set(row["figures"])
