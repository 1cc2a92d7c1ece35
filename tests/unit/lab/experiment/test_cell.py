"""A cell in three steps: prepare, play, judge; and the texts of single data sets."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch

from fednode.clip import model as clip
from fednode.clip.model import FrozenClip
from fednode.clip.settings import PLAIN
from fednode.core.types import Tensors
from fednode.errors import FednodeError
from fednode.lab.experiment.cell import Judge, Parts, Scores, judge, play, prepare, run
from fednode.lab.experiment.scene import Scene, scene
from fednode.lab.experiment.settings import Experiment, MethodSettings, ProtocolSettings
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from tests.unit.lab.experiment.pictures import DOMAINS, domains
from tests.unit.lab.experiment.results import trial
from tests.unit.policies.tiny import frozen

ZERO_SHOT = MethodSettings(label="zero-shot", policy={"name": "zero-shot"})
MEAN = MethodSettings(label="mean", policy={"name": "promptfl"})
ALONE = MethodSettings(label="alone", policy={"name": "local"})
OWN = {"pets": "a small {} on grass, seen from above."}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return trial(
        *(ZERO_SHOT, MEAN),
        data={"path": str(domains(tmp_path_factory.mktemp("images"))), "shots": 2},
        protocol={"kind": "in-domain"},
        tuning={"context_length": 3, "batch_size": 4, "epochs": 1},
        rounds=2,
        curve_every=1,
    )


@pytest.fixture(scope="module")
def parts() -> Parts:
    model = frozen()
    return Parts(model, Features(model))


def test_a_method_that_learns_nothing_has_the_control_s_settings(
    made: Experiment, parts: Parts
) -> None:
    told = replace(ZERO_SHOT, tuning={"template": "a sketch of a {}."})
    prepared = prepare(made, told, 1, scene(made, 1, ""), parts)
    assert type(prepared.objective) is CoOp
    assert prepared.settings.tuning.template == "a sketch of a {}."
    assert prepared.settings.tuning.context_length == 3
    assert {*prepared.modules.values()} == {prepared.objective}
    assert not prepared.lying
    assert set(judge(prepared, None)) == {"scores", "by_node"}
    assert set(run(made, told, 1, scene(made, 1, ""), parts)) == {"scores", "by_node", "seconds"}


def test_the_last_round_is_judged_and_the_curve_ends_with_it(
    made: Experiment, parts: Parts
) -> None:
    prepared = prepare(made, MEAN, 1, scene(made, 1, ""), parts)
    played = play(prepared)
    outcome = judge(prepared, played)
    assert set(outcome["scores"]) == set(DOMAINS)
    assert sorted(outcome["curve"]) == ["1", "2"]
    assert outcome["curve"]["2"] == outcome["scores"]
    assert (outcome["rounds"], outcome["nodes"]) == (2, len(DOMAINS))
    assert [math.isfinite(loss) for loss in outcome["loss"]] == [True, True]
    assert outcome["consensus"] == [0.0, 0.0], "all nodes hold the mean"
    assert len({one.digest for one in played.kept[2].values()}) == 1


def test_mean_at_end_tests_every_node_with_the_mean_of_finished_prompts(
    made: Experiment, parts: Parts
) -> None:
    once = replace(ALONE, label="once", mean_at_end=True)
    place = scene(made, 1, "")
    played = play(prepare(made, once, 1, place, parts))
    finished = played.kept[2]
    (name,) = next(iter(finished.values()))
    merged = np.mean([one[name] for one in finished.values()], axis=0, dtype=np.float64)
    outcome = judge(prepare(made, once, 1, place, parts), played)
    prepared = prepare(made, ALONE, 1, place, parts)
    shared = Tensors({name: merged.astype(np.float32)})
    judged = Judge(parts, prepared.modules, prepared.settings.tuning)
    assert outcome["scores"] == judged.scores(place, dict.fromkeys(finished, shared))
    assert judge(prepared, played)["scores"] == judged.scores(place, finished)
    sent = outcome["bytes"]["prompts"]
    nodes = len(finished)
    assert sent["messages"] == nodes * (nodes - 1)
    assert sent["payload"] == nodes * (nodes - 1) * merged.size * 4 < sent["serialized"]
    with pytest.raises(ValueError, match="mean_at_end is set with policy 'promptfl'"):
        replace(MEAN, mean_at_end=True)


def two_a_domain(made: Experiment) -> Experiment:
    return replace(made, protocol=ProtocolSettings("in-domain", clients=2 * len(DOMAINS)))


def test_lying_nodes_are_not_tested_and_each_domain_keeps_an_honest_node(
    made: Experiment, parts: Parts
) -> None:
    spread = two_a_domain(made)
    place = scene(spread, 1, "")
    prepared = prepare(spread, replace(MEAN, liars=2), 1, place, parts)
    assert len(prepared.lying) == 2
    tested = {name for test in prepared.scene.tests for name in test.images}
    assert tested == {client.name for client in place.clients} - set(prepared.lying)
    with pytest.raises(FednodeError, match="mean: liars is 9; at most 4 of 8 nodes can lie"):
        prepare(spread, replace(MEAN, liars=9), 1, place, parts)


def test_a_domain_that_the_policy_does_not_know_is_refused(made: Experiment, parts: Parts) -> None:
    strange = MethodSettings(label="s", policy={"name": "feddpt", "domains": ["x"]})
    with pytest.raises(FednodeError, match=r"s: data\.domain is .* of policy\.domains"):
        prepare(made, strange, 1, scene(made, 1, ""), parts)


def test_nodes_with_the_same_prompts_are_tested_once(
    made: Experiment, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, tuning = scene(two_a_domain(made), 1, ""), TuningSettings(context_length=3)
    objective = CoOp(parts.frozen, tuning)
    names = [client.name for client in place.clients]
    judge = Judge(parts, dict.fromkeys(names, objective), tuning)
    ran: list[Tensors] = []
    evaluate = TorchLearner.results

    def counted(self: TorchLearner, prompts: Tensors) -> object:
        ran.append(prompts)
        return evaluate(self, prompts)

    monkeypatch.setattr(TorchLearner, "results", counted)
    shared = dict.fromkeys(names, objective.initial(1))
    assert set(judge.scores(place, shared)) == set(DOMAINS)
    assert len(ran) == len(DOMAINS), "two nodes of a domain share their test images"
    judge.results(place, {name: objective.initial(at) for at, name in enumerate(names, 2)})
    assert len(ran) == len(DOMAINS) + len(names)
    zero_shot = judge.scores(place, {})
    assert {len(set(nodes.values())) for nodes in zero_shot.values()} == {1}


# Hand-written texts of single data sets in one federation
@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    root = domains(tmp_path_factory.mktemp("sets"), ("cars", "pets"), 12)
    return trial(
        ZERO_SHOT,
        data={"path": str(root), "shots": 2, "test": 0.8, "templates": OWN},
        protocol={"kind": "base-to-new", "clients": 2, "datasets": ("cars", "pets")},
        rounds=2,
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


def test_zero_shot_uses_the_text_of_each_data_set(federation: Experiment, parts: Parts) -> None:
    model, place = parts.frozen, scene(federation, 1, "")
    found = cast("Scores", run(federation, ZERO_SHOT, 1, place, parts)["scores"])
    for test, nodes in found.items():
        if test.endswith("/own"):
            continue
        text = OWN.get(test.split("/")[0], PLAIN)
        for accuracy in nodes.values():
            assert accuracy == pytest.approx(by_hand(model, place, text, test))
    assert any(
        by_hand(model, place, OWN["pets"], one) != by_hand(model, place, PLAIN, one)
        for one in ("pets/base", "pets/new")
    ), "the two texts must differ somewhere, or this test tells nothing"


def test_kgcoop_is_pulled_to_the_text_of_its_data_set(federation: Experiment, parts: Parts) -> None:
    tuning = {"knowledge_weight": 8.0, "context_length": 3, "lr": 0.5}
    method = replace(ALONE, tuning=tuning)
    plain = replace(federation, data=replace(federation.data, templates={}))
    place = scene(federation, 1, "")
    with_own, without = (run(one, method, 1, place, parts)["loss"] for one in (federation, plain))
    assert with_own != without
    told = replace(method, tuning={**tuning, "template": PLAIN})
    assert run(federation, told, 1, place, parts)["loss"] == without, "a method's own text wins"


@pytest.mark.parametrize(
    ("templates", "said"),
    [
        ({"pets": "a pet"}, "data.templates has 'a pet' for 'pets'"),
        ({"dogs": "a {}."}, r"names 'dogs', which is none of protocol.datasets \(cars, pets\)"),
    ],
)
def test_templates_that_do_not_fit_are_a_sentence(
    federation: Experiment, templates: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(federation, data=replace(federation.data, templates=templates))


@pytest.mark.slow
def test_fedclip_is_above_zero_shot_on_the_built_in_images() -> None:
    """With the embedded model: 200 epochs leave zero-shot behind."""
    methods = (ZERO_SHOT, MethodSettings(label="FedCLIP", policy={"name": "fedclip"}))
    data, protocol = {"path": "builtin", "shots": 8}, {"kind": "base-to-new", "clients": 2}
    made = trial(*methods, data=data, protocol=protocol, rounds=200)
    model = clip.load(made.model)
    parts, place = Parts(model, Features(model)), scene(made, 1, "")
    plain, tuned = (cast("Scores", run(made, one, 1, place, parts)["scores"]) for one in methods)
    for test in ("base", "own"):
        before, after = (statistics.mean(one[test].values()) for one in (plain, tuned))
        assert after > before + 0.02, f"{test}: {before:.3f} without, {after:.3f} with the adapter"
