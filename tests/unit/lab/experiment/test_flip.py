"""configs/experiments/flip.yaml on a small made-up tree in CoOp's layout, with its split file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.scene import scene
from tests.unit.lab.experiment.pictures import draw

FILE = Path(__file__).resolve().parents[4] / "configs/experiments/flip.yaml"
CLASSES = tuple(f"class {at:02d}" for at in range(24))
BASE, NEW = CLASSES[:11:-1], CLASSES[11::-1]
"""The labels of the split have the reverse order of the names."""
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
