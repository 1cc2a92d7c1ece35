"""Membership inference: its figures by closed forms, and what clipping and noise do to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from fednode.clip import backbone
from fednode.clip.settings import ModelSettings
from fednode.core.types import MEASURE, Job, Tensors
from fednode.data.base import DataSettings
from fednode.data.load import load
from fednode.errors import FednodeError
from fednode.lab.experiment.leak import Overheard, auc, candidates, found_at, mean_of
from fednode.learn.context import ContextObjective
from fednode.learn.features import Features
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from tests.unit.clip import tiny
from tests.unit.lab.experiment.pictures import draw

ROUNDS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> backbone.Backbone:
    place = tmp_path_factory.mktemp("model")
    name = tiny.register(place, {"context_length": 77})
    weights = place / "weights.safetensors"
    save_file(dict(tiny.clip(1, context_length=77).state_dict()), weights)
    return backbone.load(ModelSettings(name=name, pretrained=str(weights)))


@pytest.fixture(scope="module")
def learner(model: backbone.Backbone, tmp_path_factory: pytest.TempPathFactory) -> TorchLearner:
    folder = tmp_path_factory.mktemp("images")
    for label, count in (("cup", 8), ("saw", 12)):
        for at in range(count):
            draw(folder / label / f"{at:02d}.png", f"{label}{at}")
    data = load(DataSettings(path=str(folder), shots=3, test=0.5, seed=1))
    tuning = TuningSettings(batch_size=8, context_length=4, lr=0.5, epochs=5)
    return TorchLearner(model, ContextObjective(model, tuning), data, tuning, Features(model, None))


def job(learner: TorchLearner, number: int, tensors: Tensors) -> Job:
    return Job(round=number, rounds=ROUNDS, stage="", tensors=tensors, seed=number)


def test_auc_counts_pairs_and_halves_ties() -> None:
    members, others = np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0])
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in others]
    assert auc(members, others) == pytest.approx(sum(pairs) / 6)
    assert auc(members, members) == 0.5
    assert auc(members, members - 10) == 1.0


def test_found_at_few_false_alarms() -> None:
    others = np.arange(200.0)  # two of them may be taken for members: 199 and 198
    members = np.array([197.0, 197.5, 198.5, 500.0])
    assert found_at(members, others, 0.01) == 0.75
    assert found_at(members, np.array([1e9]), 0.01) == 0.0


def test_candidates_are_as_many_of_each_class(learner: TorchLearner) -> None:
    split = candidates(learner.data.train, learner.data.own)
    labels = [image.label for image in split.images]
    assert labels.count(0) == labels.count(1) == 4
    assert not {one.path for one in split.images} & {one.path for one in learner.data.train.images}
    with pytest.raises(FednodeError, match="lacks test images"):
        candidates(learner.data.train, replace(learner.data.own, images=()))


def test_losses_are_each_images_cross_entropy(learner: TorchLearner) -> None:
    start, split = learner.initial(1), learner.data.train
    found = learner.losses(split, start)
    assert found.shape == (len(split.images),)
    score, mean = learner._score(split, start, lambda: False)
    assert float(found.mean()) == pytest.approx(mean, rel=1e-5)
    logits, labels = learner._logits(split, start, lambda: False)
    by_hand = [float(-F.log_softmax(one.double(), dim=0)[at]) for one, at in
               zip(logits, labels, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found, by_hand, rtol=1e-4)
    assert 0 <= score <= 1


def test_drop_sums_what_each_round_lowered_and_loss_is_of_the_last(learner: TorchLearner) -> None:
    torch.manual_seed(0)
    ear = Overheard(learner, learner, learner.data.own)
    held, drops = learner.initial(1), []
    members, others = learner.data.train, candidates(learner.data.train, learner.data.own)
    for number in range(1, ROUNDS + 1):
        told = ear.tune(job(learner, number, held), lambda: False, lambda _: None).tensors
        drops.append([learner.losses(one, held) - learner.losses(one, told)
                      for one in (members, others)])  # fmt: skip
        measured = replace(job(learner, number, told), stage=MEASURE)
        ear.tune(measured, lambda: False, lambda _: None)  # tells nobody anything
        held = told
    figures = ear.figures()
    summed = [np.sum([one[at].astype(np.float64) for one in drops], axis=0) for at in (0, 1)]
    assert figures["drop_auc"] == pytest.approx(auc(*summed))
    last = [-learner.losses(one, held).astype(np.float64) for one in (members, others)]
    assert figures["loss_auc"] == pytest.approx(auc(*last))
    assert mean_of([figures, figures]) == pytest.approx(figures)


def test_a_job_that_trains_a_part_is_refused(learner: TorchLearner) -> None:
    ear = Overheard(learner, learner, learner.data.own)
    with pytest.raises(FednodeError, match="all exchanged prompts at once"):
        ear.tune(job(learner, 1, Tensors({"other": [1.0]})), lambda: False, lambda _: None)


def test_what_was_told_is_judged_and_not_what_was_trained(
    learner: TorchLearner, tmp_path: Path
) -> None:
    """With the change clipped to nothing and no noise to speak of, there is nothing to find."""
    from fednode.learn.private import PrivateLearner
    from fednode.learn.settings import PrivacySettings

    held = learner.initial(1)
    settings = PrivacySettings(clip=1e-9, noise=1e-9)
    private = PrivateLearner(learner, settings, 1, tmp_path, np.random.default_rng(1))
    still, open_ = (
        Overheard(private, learner, learner.data.own),
        Overheard(learner, learner, learner.data.own),
    )
    for ear in (still, open_):
        ear.tune(job(learner, 1, held), lambda: False, lambda _: None)
    assert max(float(np.abs(one).max()) for one in still._drop) < 1e-4
    assert max(float(np.abs(one).max()) for one in open_._drop) > 1e-2
