"""Batches of images: features, constants and tokens of the same images, in one order."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from open_clip.model import CLIP

from fednode.clip.model import FrozenClip
from fednode.data.base import Image as Labelled
from fednode.data.base import Split
from fednode.learn.images import EVALUATED, Images
from fednode.learn.prompt_module import PromptModule
from fednode.learn.settings import TuningSettings
from tests.unit.clip import tiny
from tests.unit.learn.test_constants import of, patches
from tests.unit.learn.test_tokens import CLASSES, made, never


@pytest.fixture(scope="module", params=["hybrid", "plain", "large"])
def model(request: pytest.FixtureRequest) -> FrozenClip:
    """The tokens of the first two are fewer numbers than the pixels."""
    if request.param == "large":
        torch.manual_seed(0)
        return tiny.frozen(CLIP(tiny.EMBED, {**tiny.VISION, "patch_size": 2}, tiny.TEXT).eval())
    return tiny.frozen(tiny.hybrid(2) if request.param == "hybrid" else tiny.clip(2))


def test_batches_carry_features_and_constants_of_the_same_images(
    model: FrozenClip, files: list[Path]
) -> None:
    features, constant = made(model), patches(model)
    many = Split(CLASSES, tuple(Labelled(files[at % 5], at % 2) for at in range(EVALUATED + 3)))
    module = PromptModule(model, TuningSettings())
    module.per_image = constant
    images = Images(features, module)
    shown = list(images.batches(many, never))
    assert [len(one.targets) for one in shown] == [EVALUATED, 3]
    wanted = features.of([one.path for one in many.images], never)
    assert torch.equal(torch.cat([one.image_features for one in shown]), wanted.features)
    known = of(features, model, files)[torch.arange(EVALUATED + 3) % 5]
    assert torch.equal(torch.cat([one.per_image for one in shown]), known)
    read = images.reader(many, never)
    index = torch.tensor([7, 0, 3])
    found = read(index)
    assert found.targets.tolist() == [1, 0, 1]
    assert torch.equal(found.image_features, wanted.features[index])
    assert torch.equal(found.per_image, known[index])
