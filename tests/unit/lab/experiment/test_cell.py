"""A cell in three steps: prepare, play, judge."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fednode.core.types import Tensors
from fednode.errors import FednodeError
from fednode.lab.experiment.cell import Judge, Parts, judge, play, prepare, run
from fednode.lab.experiment.scene import scene
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from tests.unit.lab.experiment.pictures import DOMAINS, domains
from tests.unit.policies.tiny import frozen

TUNING = {"context_length": 3, "batch_size": 4, "epochs": 1}
ZERO_SHOT = MethodSettings(label="zero-shot", policy={"name": "zero-shot"})
MEAN = MethodSettings(label="mean", policy={"name": "promptfl"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return Experiment(
        title="t",
        data=DataPart(path=str(domains(tmp_path_factory.mktemp("images"))), shots=2),
        methods=(ZERO_SHOT, MEAN),
        protocol=ProtocolSettings("in-domain"),
        tuning=TUNING,
        rounds=2,
        curve_every=1,
        seeds=(1,),
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
    assert set(judge(prepared, None)) == {"scores", "by_class"}
    assert set(run(made, told, 1, scene(made, 1, ""), parts)) == {"scores", "by_class", "seconds"}


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
    prompts = played.kept[2]
    assert len({one.digest for one in prompts.values()}) == 1


def test_mean_at_end_tests_every_node_with_the_mean_of_finished_prompts(
    made: Experiment, parts: Parts
) -> None:
    alone = MethodSettings(label="alone", policy={"name": "local"})
    once = replace(alone, label="once", mean_at_end=True)
    place = scene(made, 1, "")
    played = play(prepare(made, once, 1, place, parts))
    finished = played.kept[2]
    (name,) = next(iter(finished.values()))
    merged = np.mean([one[name] for one in finished.values()], axis=0, dtype=np.float64)
    outcome = judge(prepare(made, once, 1, place, parts), played)
    prepared = prepare(made, alone, 1, place, parts)
    shared = Tensors({name: merged.astype(np.float32)})
    judged = Judge(parts, prepared.modules, prepared.settings.tuning)
    assert outcome["scores"] == judged.scores(place, dict.fromkeys(finished, shared))
    assert judge(prepared, played)["scores"] == judged.scores(place, finished)
    sent = outcome["bytes"]["prompts"]
    nodes = len(finished)
    assert sent["messages"] == nodes * (nodes - 1)
    assert sent["payload"] == nodes * (nodes - 1) * merged.size * 4 < sent["serialized"]


def test_mean_at_end_is_for_nodes_that_tune_alone() -> None:
    with pytest.raises(ValueError, match="mean_at_end is set with policy 'promptfl'"):
        replace(MEAN, mean_at_end=True)


def test_lying_nodes_are_not_tested_and_each_domain_keeps_an_honest_node(
    made: Experiment, parts: Parts
) -> None:
    spread = replace(made, protocol=ProtocolSettings("in-domain", clients=2 * len(DOMAINS)))
    place = scene(spread, 1, "")
    prepared = prepare(spread, replace(MEAN, liars=2), 1, place, parts)
    assert len(prepared.lying) == 2
    tested = {name for test in prepared.scene.tests for name in test.images}
    assert tested == {client.name for client in place.clients} - set(prepared.lying)
    with pytest.raises(FednodeError, match="mean: liars is 9; at most 4 of 8 nodes can lie"):
        prepare(spread, replace(MEAN, liars=9), 1, place, parts)


def test_a_domain_that_the_policy_does_not_know_is_refused(
    made: Experiment, parts: Parts, tmp_path: Path
) -> None:
    strange = MethodSettings(label="s", policy={"name": "feddpt", "domains": ["x"]})
    with pytest.raises(FednodeError, match=r"s: data\.domain is .* of policy\.domains"):
        prepare(made, strange, 1, scene(made, 1, ""), parts)
