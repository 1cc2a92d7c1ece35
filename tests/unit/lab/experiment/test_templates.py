"""Hand-written texts of single data sets in one federation."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.clip.settings import PLAIN
from fednode.lab.experiment.cell import Parts, Scores, run
from fednode.lab.experiment.scene import Scene, scene
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.learn.features import Features
from tests.unit.lab.experiment.pictures import domains
from tests.unit.policies.tiny import frozen

OWN = {"pets": "a small {} on grass, seen from above."}


@pytest.fixture(scope="module")
def model() -> FrozenClip:
    return frozen()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    root = domains(tmp_path_factory.mktemp("sets"), ("cars", "pets"), 12)
    data = DataPart(path=str(root), shots=2, test=0.8, templates=OWN)
    protocol = ProtocolSettings("base-to-new", clients=2, datasets=("cars", "pets"))
    methods = (MethodSettings(label="zero-shot", policy={"name": "zero-shot"}),)
    return Experiment(
        title="t", data=data, methods=methods, protocol=protocol, rounds=2, seeds=(1,)
    )


def by_hand(model: FrozenClip, place: Scene, template: str, test: str) -> float:
    """Return the accuracy of a text on a test, by open_clip's own encoders."""
    images = next(one for one in place.tests if one.name == test).images
    (split,) = {*images.values()}
    files = [image.path for image in split.images]
    features = Features(model).of(files, lambda: False).features
    with torch.no_grad():
        names = model.tokenizer([template.format(name) for name in split.classes])[
            :, : model.model.context_length
        ]
        texts = model.model.encode_text(names, normalize=True)
    labels = torch.tensor([image.label for image in split.images])
    return float(((features @ texts.T).argmax(dim=1) == labels).float().mean())


def test_zero_shot_uses_the_text_of_each_data_set(model: FrozenClip, made: Experiment) -> None:
    place = scene(made, 1, "")
    parts = Parts(model, Features(model))
    found = cast("Scores", run(made, made.methods[0], 1, place, parts)["scores"])
    for test, nodes in found.items():
        if test.endswith("/own"):
            continue
        text = OWN.get(test.split("/")[0], PLAIN)
        for accuracy in nodes.values():
            assert accuracy == pytest.approx(by_hand(model, place, text, test))
    tests = ("pets/base", "pets/new")
    assert any(
        by_hand(model, place, OWN["pets"], one) != by_hand(model, place, PLAIN, one)
        for one in tests
    ), "the two texts must differ somewhere, or this test tells nothing"


def test_kgcoop_is_pulled_to_the_text_of_its_data_set(model: FrozenClip, made: Experiment) -> None:
    tuning = {"knowledge_weight": 8.0, "context_length": 3, "lr": 0.5}
    method = MethodSettings(label="KgCoOp", policy={"name": "local"}, tuning=tuning)
    plain = replace(made, data=replace(made.data, templates={}))
    place, parts = scene(made, 1, ""), Parts(model, Features(model))
    with_own, without = (run(one, method, 1, place, parts)["loss"] for one in (made, plain))
    assert with_own != without
    told = replace(method, tuning={**tuning, "template": PLAIN})
    assert run(made, told, 1, place, parts)["loss"] == without, "a method's own template wins"


@pytest.mark.parametrize(
    ("templates", "said"),
    [
        ({"pets": "a pet"}, "data.templates has 'a pet' for 'pets'"),
        ({"dogs": "a {}."}, r"names 'dogs', which is none of protocol.datasets \(cars, pets\)"),
    ],
)
def test_templates_that_do_not_fit_are_a_sentence(
    made: Experiment, templates: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(made, data=replace(made.data, templates=templates))
