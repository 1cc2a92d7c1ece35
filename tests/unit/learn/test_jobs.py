"""Jobs beyond plain tuning: measuring, pixels, private arrays, what moved, what is carried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fednode.clip.model import FrozenClip
from fednode.core.types import MEASURE, PRIVATE, Job, Progress, Report, Tensors
from fednode.data.base import DataSettings, NodeData
from fednode.data.decode import decode
from fednode.data.load import load
from fednode.data.pixels import Window
from fednode.errors import DataError
from fednode.learn import features as module
from fednode.learn.build import predictor
from fednode.learn.features import PIXELS, Features
from fednode.learn.learner import Cancelled
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.policies.diprompt import AVERAGE, QUERY, DiPrompTConfig, DiPrompTPrompts
from fednode.policies.feddpt import MOVED, FedDPTConfig, FedDPTPrompts
from tests.unit.data.rgb import read_rgb

CLASSES = ("accordion", "barrel", "beaver")
DOMAINS = ("art", "photo")


@pytest.fixture(scope="module")
def data() -> NodeData:
    return load(DataSettings(classes=CLASSES, shots=2, validation=0.1, test=0.1))


def never() -> bool:
    return False


def ignore(_: Progress) -> None:
    pass


def feddpt(mini: FrozenClip, data: NodeData, features: Features, **set_: Any) -> TorchLearner:
    tuning = TuningSettings(**{"batch_size": 4, "lr": 0.01, **set_})
    objective = FedDPTPrompts(mini, tuning, FedDPTConfig(domains=DOMAINS))
    return TorchLearner(mini, objective, data, tuning, features)


def diprompt(mini: FrozenClip, data: NodeData, features: Features) -> TorchLearner:
    tuning = TuningSettings(optimizer="adam", lr=0.01, batch_size=4)
    objective = DiPrompTPrompts(mini, tuning, DiPrompTConfig(domains=DOMAINS))
    return TorchLearner(mini, objective, data, tuning, features)


def job(one: TorchLearner, own: set[str], number: int = 1, **set_: Any) -> Job:
    start = one.initial(1)
    mine = Tensors({name: value for name, value in start.items() if name in own})
    rest = Tensors({name: value for name, value in start.items() if name not in own})
    given = {"reference": rest, "rounds": 3, **set_}
    return Job(round=number, stage="prompts", tensors=mine, seed=5, **given)


OWN = {"text.photo", "visual.art", "visual.photo"}


def test_measuring_trains_nothing(mini: FrozenClip, data: NodeData, features: Features) -> None:
    one = feddpt(mini, data, features)
    everything = one.initial(1)
    report = one.tune(
        Job(round=2, stage=MEASURE, tensors=everything, seed=1, rounds=30), never, ignore
    )
    assert (report.tensors, report.steps, report.changed) == (everything, 0, ())
    assert set(report.metrics) == {"validation", "validation_loss"}
    last = one.tune(
        Job(round=30, stage=MEASURE, tensors=everything, seed=1, rounds=30), never, ignore
    )
    assert {"own", "zero_shot_own"} < set(last.metrics)


def test_a_job_that_is_measured_later_is_not_measured_now(
    mini: FrozenClip, data: NodeData, features: Features
) -> None:
    one = feddpt(mini, data, features)
    report = one.tune(job(one, OWN, 3, measure=False), never, ignore)
    assert set(report.metrics) == {"loss"}


def test_what_moved_and_what_is_carried(
    mini: FrozenClip, data: NodeData, features: Features
) -> None:
    """Private prompts and averages go round; the optimizer's state is of all that is trained."""
    one = diprompt(mini, data, features)
    names = {"global", "domain.art", "domain.photo"}
    first = one.tune(job(one, names), never, ignore)
    assert set(first.tensors) == names
    moved = {name for name in names if first.tensors[name].tolist() !=
             one.initial(1)[name].tolist()}  # fmt: skip
    assert set(first.changed) == moved
    assert {PRIVATE + QUERY, AVERAGE, f"{QUERY}/exp_avg", "global/step"} <= set(first.carry)
    second = one.tune(job(one, names, 2, carry=first.carry), never, ignore)
    # It goes on: a job without the carry asks with the query's first words.
    fresh = one.tune(job(one, names, 2), never, ignore)
    assert second.carry[PRIVATE + QUERY].tolist() != fresh.carry[PRIVATE + QUERY].tolist()
    assert float(second.carry["global/step"]) == 2 * float(first.carry["global/step"])


def test_averages_of_others_prompts_go_on(
    mini: FrozenClip, data: NodeData, features: Features
) -> None:
    one = feddpt(mini, data, features)
    moved = one.initial(2)["text.art"]
    carry = Tensors({MOVED + "text.art": moved})
    report = one.tune(job(one, OWN, carry=carry, measure=False), never, ignore)
    steps = report.steps
    received = np.asarray(one.initial(1)["text.art"], dtype=np.float64)
    wanted = received + 0.99**steps * (moved - received)
    assert np.allclose(report.carry[MOVED + "text.art"], wanted, atol=1e-6)


def test_equal_jobs_on_pixels_give_equal_bits(
    mini: FrozenClip, data: NodeData, features: Features
) -> None:
    def made(**set_: Any) -> Report:
        one = feddpt(mini, data, features, **set_)
        return one.tune(job(one, OWN, measure=False), never, ignore)

    assert made().tensors == made(pixels_mb=0).tensors


def test_pixels_are_kept_up_to_a_limit(
    mini: FrozenClip, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counted(path: Path, window: Window = None) -> Any:
        read.append(path)
        return decode(path, window=window)

    monkeypatch.setattr(module, "decode", counted)
    features = Features(mini)
    side = mini.model.visual.image_size[0]
    size = 3 * side * side * 4
    features.keep_pixels(2 * size)
    first = features.values(PIXELS, paths, never)
    assert first.shape == (3, 3, side, side)
    assert torch.equal(first[1], mini.preprocess(read_rgb(paths[1])))
    assert torch.equal(features.values(PIXELS, paths, never), first)
    assert (len(read), len(set(read))) == (4, 3), "one of three did not fit and was read twice"
    again = features.values(PIXELS, [paths[2], paths[2], paths[0]], never)
    assert torch.equal(again, first[[2, 2, 0]])


def test_a_file_that_changed_is_decoded_anew_and_one_that_is_gone_is_a_sentence(
    mini: FrozenClip, paths: list[Path]
) -> None:
    features = Features(mini)
    features.keep_pixels(10**8)
    before = features.values(PIXELS, paths[:1], never)
    Image.new("RGB", (64, 65), (9, 9, 9)).save(paths[0])
    assert not torch.equal(features.values(PIXELS, paths[:1], never), before)
    paths[0].unlink()
    with pytest.raises(DataError, match=r"0\.png' can no longer be read"):
        features.values(PIXELS, paths[:1], never)
    with pytest.raises(Cancelled):
        features.values(PIXELS, paths[1:2], lambda: True)


def test_a_predictor_looks_at_pixels_where_its_objective_does(
    mini: FrozenClip, data: NodeData, features: Features
) -> None:
    one = feddpt(mini, data, features)
    prompts, predict = one.initial(3), predictor(one.module)
    found = predict(prompts, [image.path for image in data.own.images], data.own.classes)
    labels = np.array([image.label for image in data.own.images])
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-5)
    accuracy = one.evaluate(prompts, never)["own"]
    assert (found.argmax(axis=1) == labels).mean() == pytest.approx(accuracy)
