"""Who gets which images, and what is tested."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fednode.data.base import Split
from fednode.errors import ConfigError, DataError
from fednode.lab.experiment.scene import client_blocks, columns, scene, targets
from fednode.lab.experiment.settings import Experiment, MethodSettings
from tests.unit.lab.experiment.pictures import CLASSES, DOMAINS, domains
from tests.unit.lab.experiment.results import trial

ZERO_SHOT = MethodSettings(label="zero-shot", policy={"name": "zero-shot"})

# Classes of ZeroDFL's nine data sets, and the clients that Table III of its paper gives them, for
# 20 and for 10 classes per client.
DATA_SETS = {
    "caltech101": (100, 2, 5),
    "oxford_flowers": (102, 3, 5),
    "oxford_pets": (37, 1, 2),
    "fgvc_aircraft": (100, 2, 5),
    "dtd": (47, 1, 2),
    "ucf101": (101, 3, 5),
    "food101": (101, 3, 5),
    "stanford_cars": (196, 5, 10),
    "sun397": (397, 10, 20),
}


def experiment(path: Path, data: Mapping[str, Any] | None = None, **protocol: Any) -> Experiment:
    return trial(ZERO_SHOT, data={"path": str(path), "shots": 0, **(data or {})}, protocol=protocol)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return domains(tmp_path_factory.mktemp("domains"), images=10)


def files(split: Split) -> set[Path]:
    return {image.path for image in split.images}


def test_one_domain_is_left_out_and_tested_whole(folder: Path) -> None:
    made = experiment(folder)
    assert targets(made) == columns(made) == DOMAINS
    found = scene(made, 1, "photo")
    assert found.domains == ("art", "real_world", "sketch")
    assert [one.name for one in found.clients] == ["node-01", "node-02", "node-03"]
    assert [one.domain for one in found.clients] == list(found.domains)
    for client in found.clients:
        assert len(client.data.train.images) == 40
        assert not any("photo" in path.parts for path in files(client.data.train))
        assert not client.data.own.images
    (test,) = found.tests
    assert test.name == "photo"
    assert set(test.images) == {"node-01", "node-02", "node-03"}
    assert files(test.images["node-01"]) == set((folder / "photo").rglob("*.png"))
    # A test may be made smaller: always with the same images.
    small = experiment(folder, {"test_images": 3})
    one, two = (scene(small, seed, "photo").tests[0].images["node-01"] for seed in (1, 2))
    assert one == two
    assert len(one.images) == 3 * len(CLASSES)


def test_clients_of_one_domain_share_it_out_evenly(folder: Path) -> None:
    found = scene(experiment(folder, clients=7), 1, "photo")
    shares: dict[str, list[set[Path]]] = {}
    for client in found.clients:
        shares.setdefault(client.domain, []).append(files(client.data.train))
    assert sorted(map(len, shares.values())) == [2, 2, 3]
    for name, parts in shares.items():
        assert sum(map(len, parts)) == len(set.union(*parts)) == 40, name
        assert max(map(len, parts)) - min(map(len, parts)) <= len(CLASSES)


def test_in_domain_each_is_tested_on_its_own_images(folder: Path) -> None:
    made = experiment(folder, kind="in-domain")
    assert targets(made) == ("",)
    found = scene(made, 1, "")
    assert [one.name for one in found.tests] == list(columns(made)) == list(DOMAINS)
    for client, test in zip(found.clients, found.tests, strict=True):
        assert set(test.images) == {client.name}
        tested = files(test.images[client.name])
        assert len(tested) == 8
        assert not tested & files(client.data.train)


def test_base_and_new_classes_in_blocks(folder: Path) -> None:
    made = experiment(folder / "photo", kind="base-to-new", clients=2)
    assert columns(made) == ("base", "new", "own")
    found = scene(made, 1, "")
    assert [one.data.train.classes for one in found.clients] == [("dog",), ("guitar",)]
    assert all({image.label for image in one.data.train.images} == {0} for one in found.clients)
    tests = {one.name: one.images for one in found.tests}
    assert tests["new"]["node-01"].classes == ("house", "person")
    assert tests["base"]["node-02"].classes == ("dog", "guitar")
    assert tests["own"]["node-02"].classes == ("guitar",)
    assert {path.parent.name for path in files(tests["own"]["node-02"])} == {"guitar"}


def test_one_federation_over_several_data_sets(folder: Path) -> None:
    made = experiment(folder, kind="base-to-new", classes_per_client=1, datasets=("Art", "photo"))
    found = scene(made, 1, "")
    assert [one.domain for one in found.clients] == ["Art", "Art", "photo", "photo"]
    assert [one.name for one in found.tests] == list(columns(made))
    tests = {one.name: one.images for one in found.tests}
    assert set(tests["photo/new"]) == {"node-03", "node-04"}


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"targets": ("foto",)}, "protocol.targets names 'foto'"),
        ({"clients": 2}, "protocol.clients is 2 with 3 domains"),
        ({"kind": "base-to-new", "datasets": ("photo",), "clients": 3}, "3 for a data set of 2"),
    ],
)
def test_what_does_not_fit_the_data_is_a_sentence(
    folder: Path, protocol: dict[str, Any], said: str
) -> None:
    made = experiment(folder, **protocol)
    with pytest.raises(ConfigError, match=said):
        scene(made, 1, targets(made)[0])


def test_chosen_domains_alone_are_learned_and_tested(folder: Path) -> None:
    made = experiment(folder, {"domains": ("sketch", "photo", "Art"), "classes": ("dog", "house")})
    assert targets(made) == columns(made) == ("Art", "photo", "sketch")
    found = scene(made, 1, "photo")
    assert found.domains == ("art", "sketch")
    assert found.clients[0].data.train.classes == ("dog", "house")
    (test,) = found.tests
    assert test.images["node-01"].classes == ("dog", "house")
    assert columns(experiment(folder, {"domains": ("photo",)}, kind="in-domain")) == ("photo",)
    with pytest.raises(ConfigError, match="photo is the only domain to use"):
        targets(experiment(folder, {"domains": ("photo",)}))
    with pytest.raises(ConfigError, match="'photo', which is no domain of this experiment in"):
        targets(experiment(folder, {"domains": ("Art", "sketch")}, targets=("photo",)))


def test_classes_that_are_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    for at, name in enumerate(CLASSES):
        (tmp_path / str(at)).symlink_to(folder / "photo" / name)
    with pytest.raises(DataError, match="are numbers, which say nothing to the model: rename"):
        scene(experiment(tmp_path, kind="base-to-new", clients=2), 1, "")
    with pytest.raises(ConfigError, match="has no domains"):
        targets(experiment(Path("builtin")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no folder"):
        targets(experiment(tmp_path / "empty"))


@pytest.mark.parametrize(("classes", "by_20", "by_10"), DATA_SETS.values(), ids=DATA_SETS)
def test_clients_per_data_set_are_the_published_ones(classes: int, by_20: int, by_10: int) -> None:
    base = (classes + 1) // 2
    assert (len(client_blocks(base, 20)), len(client_blocks(base, 10))) == (by_20, by_10)


def test_the_last_client_takes_the_remainder() -> None:
    assert client_blocks(50, 20) == (range(20), range(20, 50))
    assert client_blocks(51, 20) == (range(20), range(20, 40), range(40, 51))
    assert client_blocks(19, 20) == (range(19),)
