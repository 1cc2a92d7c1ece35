"""What a round measures, notes and refuses; the contract suite holds the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fednode.clip.model import FrozenClip
from fednode.clip.settings import ModelSettings
from fednode.core.types import EMPTY, Job, Progress, Tensors
from fednode.data.base import DataSettings, NodeData
from fednode.data.load import load
from fednode.data.rescan import Rescan
from fednode.errors import ModelError
from fednode.learn.build import build
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from fednode.learn.local_tuning import BatchSize
from fednode.learn.prompt_module import Batch, JobInputs
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.testing.learners import ignore, never
from tests.unit.learn.conftest import SMALL

Make = Callable[..., TorchLearner]


@pytest.fixture
def learner(model: FrozenClip, data: NodeData, features: Features) -> Make:
    """Return what makes a learner with settings of tuning."""

    def make(data: NodeData = data, model: FrozenClip = model, **settings: Any) -> TorchLearner:
        tuning = TuningSettings(**settings)
        return TorchLearner(model, CoOp(model, tuning), data, tuning, features)

    return make


def job_of(one: TorchLearner, number: int = 1, **set_: Any) -> Job:
    return Job(
        **{"round": number, "stage": "prompts", "tensors": one.initial(1), "seed": 9, **set_}
    )


def test_a_round_equals_plain_torch(
    learner: Make, model: FrozenClip, data: NodeData, features: Features
) -> None:
    one = learner(batch_size=3, epochs=2, lr=0.05, schedule="constant")
    job = job_of(one)
    report = one.tune(job, never, ignore)
    context = torch.tensor(job.tensors["context"], requires_grad=True)
    descent = torch.optim.SGD([context], lr=0.05, momentum=0.9, weight_decay=1e-5)
    images = features.of([image.path for image in data.train.images], never).features
    labels = torch.tensor([image.label for image in data.train.images])
    order = torch.Generator().manual_seed(9)
    losses = []
    for _ in range(2):
        for part in torch.split(torch.randperm(len(labels), generator=order), 3):
            texts = model.text.encode(model.text.tokens(data.train.classes, 4), context)
            loss = torch.nn.functional.cross_entropy(
                model.logit_scale * images[part] @ texts.T, labels[part]
            )
            descent.zero_grad()
            torch.autograd.backward(loss)
            descent.step()
            losses.append(loss.item())
    assert np.array_equal(report.tensors["context"], context.detach().numpy())
    other = one.tune(replace(job, seed=8), never, ignore)
    assert other.tensors != report.tensors, "its batches come in another order"
    assert report.metrics["loss"] == pytest.approx(np.mean(losses))
    assert report.steps == len(losses) == 6


@pytest.mark.parametrize("iterations", [3, 4])
def test_iterations_replace_epochs(learner: Make, data: NodeData, iterations: int) -> None:
    """Batches of 3 of 8 images: an epoch has 3 steps, and then the order is drawn anew."""
    assert len(data.train.images) == 8
    steps: list[Progress] = []
    few, whole = (
        learner(batch_size=3, lr=0.05, schedule="constant", **set_)
        for set_ in ({"iterations": iterations, "epochs": 7}, {"epochs": 1})
    )
    job = job_of(few)
    report = few.tune(job, never, steps.append)
    assert [(one.step, one.steps) for one in steps] == [
        (at, iterations) for at in range(1, iterations + 1)
    ]
    assert report.steps == iterations
    same = report.tensors == whole.tune(job, never, ignore).tensors
    assert same == (iterations == 3)


def test_accuracies_are_those_of_the_arg_max(
    learner: Make, model: FrozenClip, data: NodeData, features: Features
) -> None:
    one = learner()
    metrics = one.evaluate(EMPTY, never)
    assert set(metrics) == {"own", "base", "new"}
    assert data.new is not None
    names = [f"a photo of a {name}." for name in data.new.classes]
    ids = model.tokenizer(names, model.text.length_max)
    with torch.no_grad():
        texts = model.model.encode_text(ids, normalize=True)
    images = features.of([image.path for image in data.new.images], never).features
    right = [
        int((row @ texts.T).argmax()) == image.label
        for row, image in zip(images, data.new.images, strict=True)
    ]
    assert metrics["new"] == pytest.approx(np.mean(right))
    results = one.results(EMPTY)
    assert {name: found.accuracy for name, found in results.items()} == pytest.approx(metrics)
    assert results["new"].classes == data.new.classes
    assert results["new"].images == len(data.new.images)


@pytest.mark.parametrize(
    ("every", "rounds", "evaluated", "others"),
    [
        (0, 4, (4, 5), (1, 3)),
        (2, 4, (2, 4), (1, 3)),
        (0, 0, (), (7,)),
        (4, 0, (8,), (7,)),
        (None, 4, (1,), ()),
        (None, 50, (1, 5, 50), (4,)),
        (None, 0, (10,), (9,)),
    ],
)
def test_rounds_that_are_evaluated(
    learner: Make,
    every: int | None,
    rounds: int,
    evaluated: tuple[int, ...],
    others: tuple[int, ...],
) -> None:
    one = learner(evaluate_every=every)
    for number in (*evaluated, *others):
        metrics = one.tune(job_of(one, number, rounds=rounds), never, ignore).metrics
        assert 0.0 <= metrics["validation"] <= 1.0
        assert ("new" in metrics) == ("zero_shot_new" in metrics) == (number in evaluated)


def test_divergence_and_an_image_without_room_are_sentences(
    learner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learner(lr=1e38, epochs=3)
    with pytest.raises(ModelError, match=r"tuning diverged in round 1: .* lower tuning\.lr"):
        one.tune(job_of(one), never, ignore)

    def full(batch: Batch, inputs: JobInputs) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(one.module, "loss", full)
    with pytest.raises(ModelError, match="ends in a step with one image: choose a smaller model"):
        one.tune(job_of(one), never, ignore)


def test_the_schema_is_names_and_shapes(learner: Make) -> None:
    four, again, two = (learner(context_length=length).schema for length in (4, 4, 2))
    assert four == again != two


def test_notes_name_skipped_files_and_unknown_words(
    learner: Make, model: FrozenClip, data: NodeData
) -> None:
    faults = {"a.jpg": "the file is empty", "b.jpg": "damaged", "c.jpg": "damaged"}
    skipped = tuple((Path(name), why) for name, why in faults.items())
    names = replace(data.train, classes=("accordion", "gerenuk"))
    odd = replace(data, skipped=skipped, train=names, notes=("fewer shots",))
    taught = replace(model, seen=frozenset(model.tokenizer.encode("accordion")))
    notes = learner(odd, taught).notes
    assert notes[:3] == (
        "fewer shots",
        "Skipped 2 files (damaged): 'b.jpg' and 1 more.",
        "Skipped 1 file (the file is empty): 'a.jpg'.",
    )
    assert notes[3].startswith(
        f"1 of 2 class names hold words that no training text of {model.label}"
    )
    assert "gerenuk" in notes[3]


def watched(model: FrozenClip, root: Path) -> TorchLearner:
    """Return a learner that looks again at a folder of two classes."""
    settings = DataSettings(path=str(root), shots=0, test=0.25)
    tuning = TuningSettings(batch_size=1)
    splits, module = load(settings), CoOp(model, tuning)
    rescan = Rescan(settings, None, splits)
    return TorchLearner(model, module, splits, tuning, Features(model), rescan)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, shade in (("cat", 40), ("dog", 200)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (32, 32), (shade, number, 0)).save(
                tmp_path / "images" / name / f"{number}.png"
            )
    return tmp_path / "images"


def later(folder: Path) -> None:
    """Let a folder's time differ, however coarse the file system's clock is."""
    stat = folder.stat()
    os.utime(folder, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))


def test_images_that_come_between_rounds_are_trained_on(model: FrozenClip, root: Path) -> None:
    one = watched(model, root)
    job = job_of(one)
    before = one.tune(job, never, ignore)
    Image.new("RGB", (32, 32), (9, 9, 9)).save(root / "cat" / "new.png")
    later(root / "cat")
    after = one.tune(job, never, ignore)
    assert (before.steps, after.steps) == (6, 7)
    assert after.samples == one.samples == 7
    shutil.rmtree(root / "dog")
    assert one.tune(job, never, ignore).samples == 7
    assert any("last good look" in note for note in one.notes)


def test_an_image_that_was_replaced_is_encoded_anew(model: FrozenClip, root: Path) -> None:
    """The split is the same, so what is kept for the split must not be used."""
    one = watched(model, root)
    job = job_of(one)
    before = one.tune(job, never, ignore)
    for number in range(4):
        path = root / "cat" / f"{number}.png"
        path.unlink()
        Image.linear_gradient("L").rotate(30 * number).convert("RGB").save(path)
    later(root / "cat")
    after = one.tune(job, never, ignore)
    assert after.tensors == watched(model, root).tune(job, never, ignore).tensors
    assert after.tensors != before.tensors


@pytest.mark.parametrize(("settings", "sizes"), [
    ({}, [2, 2, 2, 2]),
    ({"iterations": 3}, [2, 2, 2]),
    ({"epochs": 2, "batch_size": 4}, [2, 2, 2, 2, 2, 2, 2, 2]),
])  # fmt: skip
def test_smaller_batches_take_the_place_of_those_that_do_not_fit(
    learner: Make, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sizes: list[int]
) -> None:
    """A GPU whose memory holds three images; all of the eight images are seen in each epoch."""
    one = learner(**{"batch_size": 200, "lr": 0.05, **settings})
    seen: list[tuple[int, ...]] = []
    loss = one.module.loss

    def scarce(batch: Batch, inputs: JobInputs) -> torch.Tensor:
        if len(batch.index_host) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        seen.append(batch.index_host)
        return loss(batch, inputs)

    monkeypatch.setattr(one.module, "loss", scarce)
    assert not any("memory" in note for note in one.notes)
    job = job_of(one)
    report = one.tune(job, never, ignore)
    assert [len(places) for places in seen] == sizes
    assert report.steps == len(sizes)
    if not settings.get("iterations"):
        assert {at for places in seen[:4] for at in places} == set(range(8))
    (note,) = [note for note in one.notes if "memory" in note]
    assert note.startswith("The memory of cpu holds no step of ")
    assert note.endswith("steps have 2 images at most.")


def test_a_batch_size_halves_and_never_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory")
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    size = BatchSize(200, torch.device("cuda:0"))
    assert not size.notes
    assert [size.halve(count, full) for count in (200, 100, 200, 7)] == [100, 50, 50, 3]
    assert len(emptied) == 4
    assert size.notes == (
        "The memory of cuda:0 holds no step of 200 images (tuning.batch_size): steps have 3 images "
        "at most.",
    )


def test_a_learner_is_built_from_settings_and_keeps_its_features(tmp_path: Path) -> None:
    tuning = TuningSettings(threads=1)
    cache = CacheSettings(folder=str(tmp_path))
    one = build(ModelSettings(device="cpu"), SMALL, tuning, cache, CoOp, None)
    assert one.classes == ("accordion", "barrel")
    assert one.samples == 8
    one.evaluate(Tensors(), never)
    assert (tmp_path / "features.db").exists()
    off = CacheSettings(folder=str(tmp_path / "none"), size_mb=0)
    build(ModelSettings(device="cpu"), SMALL, tuning, off, CoOp, None)
    assert not (tmp_path / "none").exists()
