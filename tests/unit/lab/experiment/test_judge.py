"""The judge tests each prompts on each test once, and knows the hand-written prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.core.types import Tensors
from fednode.lab.experiment.cell import Judge, Parts
from fednode.lab.experiment.scene import scene
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from tests.unit.lab.experiment.pictures import DOMAINS, domains
from tests.unit.policies.tiny import frozen


def test_nodes_with_the_same_prompts_are_tested_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment(
        title="t",
        data=DataPart(path=str(domains(tmp_path)), shots=2),
        methods=(MethodSettings(label="local", policy={"name": "local"}),),
        protocol=ProtocolSettings("in-domain", clients=2 * len(DOMAINS)),
    )
    place, model, tuning = scene(experiment, 1, ""), frozen(), TuningSettings(context_length=3)
    objective = CoOp(model, tuning)
    ran: list[Tensors] = []
    evaluate = TorchLearner.results

    def counted(self: TorchLearner, prompts: Tensors) -> object:
        ran.append(prompts)
        return evaluate(self, prompts)

    monkeypatch.setattr(TorchLearner, "results", counted)
    names = [client.name for client in place.clients]
    judge = Judge(Parts(model, Features(model)), dict.fromkeys(names, objective), tuning)
    shared = dict.fromkeys(names, objective.initial(1))
    results, scores = judge.results(place, shared), judge.scores(place, shared)
    assert len(ran) == len(DOMAINS), "two nodes of a domain share their test images"
    assert set(scores) == set(DOMAINS)
    for test, nodes in results.items():
        assert scores[test] == {name: one.accuracy for name, one in nodes.items() if one}
    own = {name: objective.initial(at) for at, name in enumerate(names, 2)}
    judge.results(place, own)
    assert len(ran) == len(DOMAINS) + len(names)
    zero_shot = judge.scores(place, {})
    assert {len(set(nodes.values())) for nodes in zero_shot.values()} == {1}
