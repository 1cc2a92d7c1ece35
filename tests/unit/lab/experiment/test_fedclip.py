"""FedCLIP with the embedded model: 200 epochs leave zero-shot behind."""

from __future__ import annotations

import statistics
from typing import cast

import pytest

from fednode.clip import model as clip
from fednode.lab.experiment.cell import Parts, Scores, run
from fednode.lab.experiment.scene import scene
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.learn.features import Features


@pytest.mark.slow
def test_fedclip_is_above_zero_shot_on_the_built_in_images() -> None:
    methods = (
        MethodSettings(label="zero-shot", policy={"name": "zero-shot"}),
        MethodSettings(label="FedCLIP", policy={"name": "fedclip"}),
    )
    protocol = ProtocolSettings(kind="base-to-new", clients=2)
    made = Experiment(
        title="t",
        data=DataPart(path="builtin", shots=8),
        methods=methods,
        protocol=protocol,
        rounds=200,
        seeds=(1,),
    )
    frozen = clip.load(made.model)
    parts, place = Parts(frozen, Features(frozen)), scene(made, 1, "")
    plain, tuned = (cast("Scores", run(made, one, 1, place, parts)["scores"]) for one in methods)
    for test in ("base", "own"):
        before, after = (statistics.mean(one[test].values()) for one in (plain, tuned))
        assert after > before + 0.02, f"{test}: {before:.3f} without, {after:.3f} with the adapter"
