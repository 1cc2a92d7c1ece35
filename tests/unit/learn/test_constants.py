"""Constants of images (FedOTP's patches) are computed once: the same bits from memory and disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from open_clip.model import CLIP
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.clip.settings import PLAIN
from fednode.clip.vision import VisionTower
from fednode.core.types import MEASURE, PRIVATE, Job, Tensors
from fednode.data import decode as decoding
from fednode.data.base import Image as Labelled
from fednode.data.base import NodeData, Split
from fednode.data.pixels import Window
from fednode.errors import DataError, ModelError
from fednode.learn import features as module
from fednode.learn.build import predictor
from fednode.learn.export import affine
from fednode.learn.features import Features
from fednode.learn.images import Images
from fednode.learn.learner import Cancelled
from fednode.learn.prompt_module import PerImageArray
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.policies.fedotp import FedOTPConfig
from fednode.policies.fedotp import FedOTPPrompts as FedOTP
from tests.unit.clip import tiny
from tests.unit.data.rgb import read_rgb
from tests.unit.learn.test_tokens import CLASSES, ROOM, made, never


@pytest.fixture(scope="module", params=["hybrid", "plain", "large"])
def model(request: pytest.FixtureRequest) -> FrozenClip:
    """The tokens of the first two are fewer numbers than the pixels."""
    if request.param == "large":
        torch.manual_seed(0)
        return tiny.frozen(CLIP(tiny.EMBED, {**tiny.VISION, "patch_size": 2}, tiny.TEXT).eval())
    return tiny.frozen(tiny.hybrid(2) if request.param == "hybrid" else tiny.clip(2))


def patches(model: FrozenClip) -> PerImageArray:
    return PerImageArray("patches", model.vision.patches_shape, model.vision.patches)


def of(one: Features, model: FrozenClip, files: list[Path]) -> Tensor:
    return one.values(patches(model), files, never)


def test_patches_are_open_clip_s_own(model: FrozenClip, files: list[Path]) -> None:
    found = of(made(model), model, files)
    visual = model.model.visual
    pixels = torch.stack([model.preprocess(read_rgb(path)) for path in files])
    visual.output_tokens = True
    with torch.no_grad():
        _, tokens = visual(pixels)
    visual.output_tokens = False
    rows, columns = visual.grid_size
    wanted = tokens[:, : rows * columns] @ visual.proj  # a hybrid has a concept token behind them
    assert found.shape == (5, *model.vision.patches_shape)
    torch.testing.assert_close(found, torch.nn.functional.normalize(wanted, dim=-1))


def test_kept_and_fresh_are_the_same_bits(
    model: FrozenClip, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = VisionTower.patches

    def counted(tower: VisionTower, images: Tensor) -> Tensor:
        sizes.append(len(images))
        return real(tower, images)

    monkeypatch.setattr(VisionTower, "patches", counted)
    monkeypatch.setattr(module, "BATCH", len(files) + 1)
    fresh = of(made(model), model, files)
    alone = torch.cat([of(made(model), model, [path]) for path in files])
    assert torch.equal(alone, fresh)
    assert sizes == [module.BATCH] * 6
    first = made(model, tmp_path, ROOM)
    assert torch.equal(of(first, model, files[::-1]), fresh.flip(0))
    assert torch.equal(of(first, model, files), fresh)  # from memory
    assert torch.equal(of(made(model, tmp_path), model, files), fresh)  # from disk
    assert sizes == [module.BATCH] * 7


def test_names_and_features_do_not_meet_in_the_cache(
    model: FrozenClip, files: list[Path], tmp_path: Path
) -> None:
    one = made(model, tmp_path)
    features, plain = one.of(files, never).features, of(one, model, files)
    other = PerImageArray("ones", (2,), lambda images: torch.ones(len(images), 2))
    assert torch.equal(one.values(other, files, never), torch.ones(5, 2))
    again = made(model, tmp_path)
    assert torch.equal(of(again, model, files), plain)
    assert torch.equal(again.values(other, files, never), torch.ones(5, 2))
    assert torch.equal(again.of(files, never).features, features)


def test_memory_has_a_bound(
    model: FrozenClip, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Path] = []

    def counted(path: Path, window: Window = None) -> Any:
        decoded.append(path)
        return decoding.decode(path, window=window)

    monkeypatch.setattr(module, "decode", counted)
    count, width = model.vision.patches_shape
    one = made(model, limit=2 * 4 * count * width)
    first = of(one, model, files)
    assert torch.equal(of(one, model, files), first)
    assert len(decoded) == 2 * len(files) - 2


def test_a_lost_file_is_a_sentence(model: FrozenClip, files: list[Path]) -> None:
    files[0].unlink()
    with pytest.raises(DataError, match=r"0\.png' can no longer be read"):
        of(made(model), model, files[:1])
    with pytest.raises(Cancelled):
        made(model).values(patches(model), files[1:2], lambda: True)


def learner(model: FrozenClip, files: list[Path], folder: Path | None, **set_: Any) -> TorchLearner:
    tuning = TuningSettings(batch_size=2, epochs=2, context_length=2, lr=0.1, **set_)
    train = Split(CLASSES, tuple(Labelled(path, at % 2) for at, path in enumerate(files)))
    data = NodeData(train=train, validation=train, own=train, base=None, new=None)
    one = FedOTP(model, tuning, FedOTPConfig())
    return TorchLearner(model, one, data, tuning, made(model, folder))


def test_fedotp_tunes_with_equal_bits_with_and_without_the_cache(
    model: FrozenClip, files: list[Path], tmp_path: Path
) -> None:
    def tuned(folder: Path | None, **set_: Any) -> Any:
        one = learner(model, files, folder, **set_)
        job = Job(round=1, stage="prompts", tensors=one.initial(1), seed=5, rounds=3)
        report = one.tune(job, never, lambda _: None)
        assert set(report.tensors) == {"global"}
        assert report.tensors != one.initial(1)
        return report.tensors, report.carry[PRIVATE + "local"].tolist(), report.metrics

    wanted = tuned(None, pixels_mb=0)
    assert wanted == tuned(None)
    assert wanted == tuned(tmp_path / "one")
    assert wanted == tuned(tmp_path / "one", pixels_mb=0)


def test_a_job_that_measures_uses_the_private_prompt(model: FrozenClip, files: list[Path]) -> None:
    one = learner(model, files, None)
    job = Job(round=3, stage="prompts", tensors=one.initial(1), seed=5, rounds=3)
    report = one.tune(job, never, lambda _: None)
    both = {**report.tensors, "local": report.carry[PRIVATE + "local"]}
    look = Job(round=3, stage=MEASURE, tensors=Tensors(both), seed=5, rounds=3)
    measured = one.tune(look, never, lambda _: None).metrics
    assert report.metrics["validation_loss"] == measured["validation_loss"]
    alone = Job(round=3, stage=MEASURE, tensors=report.tensors, seed=5, rounds=3)
    less = one.tune(alone, never, lambda _: None).metrics
    assert less["validation_loss"] != measured["validation_loss"]


def test_predictions_are_the_classifier_s_and_a_matrix_is_refused(
    model: FrozenClip, files: list[Path]
) -> None:
    tuning, config = TuningSettings(context_length=2), FedOTPConfig()
    one = FedOTP(model, tuning, config)
    prompts = Tensors({**one.initial(1), **one.private(2)})
    shown = predictor(one)(prompts, files, CLASSES)
    held = {name: torch.tensor(value) for name, value in prompts.items()}
    logits = one.classifier(held, CLASSES)(next(Images(made(model), one)
        .batches(Split(CLASSES, tuple(Labelled(path, 0) for path in files)), never)))  # fmt: skip
    assert torch.equal(torch.tensor(shown), logits.double().softmax(dim=1))
    with pytest.raises(ModelError, match="more than a matrix of text features"):
        affine(one, prompts, CLASSES)


def test_a_tower_without_patches_is_a_sentence() -> None:
    resnet = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}
    pooled = {**tiny.VISION, "attentional_pool": True}
    for vision, text in ((resnet, "a model such as ViT-B-16"), (pooled, "pools by attention")):
        made_of: Any = SimpleNamespace(
            text=SimpleNamespace(tokens=str),
            template=PLAIN,
            vision=VisionTower(CLIP(tiny.EMBED, vision, tiny.TEXT).eval(), "odd"),
        )
        with pytest.raises(ModelError, match=f"odd .*no features of patches: .*{text}"):
            FedOTP(made_of, TuningSettings(), FedOTPConfig())
