"""What most modules share: the fields of a batch, zero-shot by texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.types import EMPTY
from fednode.learn.prompt_module import Batch, PromptModule
from fednode.learn.settings import TuningSettings

FULL = Batch(
    features=torch.eye(2),
    norms=torch.tensor([2.0, 3.0]),
    labels=torch.tensor([0, 1]),
    constants=torch.ones(2, 4),
)


def test_a_batch_gives_what_it_has() -> None:
    assert torch.equal(FULL.image_features, torch.eye(2))
    assert torch.equal(FULL.raw_features, torch.diag(torch.tensor([2.0, 3.0])))
    assert torch.equal(FULL.targets, torch.tensor([0, 1]))
    assert torch.equal(FULL.per_image, torch.ones(2, 4))


def test_tokens_are_looked_at_before_pixels() -> None:
    pixels, tokens = torch.zeros(1), torch.ones(1)
    assert Batch(pixels=pixels).images is pixels
    assert Batch(pixels=pixels, tokens=tokens).images is tokens


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda batch: batch.image_features, "works on features"),
        (lambda batch: batch.raw_features, "features that are not unit"),
        (lambda batch: batch.per_image, "needs its numbers"),
        (lambda batch: batch.images, "uses the image encoder"),
        (lambda batch: batch.targets, "images have labels"),
    ],
)
def test_what_a_batch_has_not_is_named(read: Callable[[Batch], object], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        read(Batch())


def test_zero_shot_is_the_scaled_cosine_with_the_template_s_texts(mini: FrozenClip) -> None:
    made = PromptModule(mini, TuningSettings(template="a sketch of a {}."))
    texts = mini.text.encode(mini.text.texts(("cat", "dog"), "a sketch of a {}."))
    shown = made.zero_shot(texts, ("cat", "dog"))
    assert torch.allclose(shown, mini.logit_scale * texts @ texts.T, atol=1e-4)
    assert shown.argmax(dim=1).tolist() == [0, 1]
    assert made.private(1) == EMPTY
    assert (made.uses_image_encoder, made.per_image) == (False, None)
