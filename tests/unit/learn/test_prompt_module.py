"""What most modules share: the fields of a batch, zero-shot by texts."""

from __future__ import annotations

import torch

from fednode.clip.model import FrozenClip
from fednode.core.types import EMPTY
from fednode.learn.prompt_module import Batch, PromptModule
from fednode.learn.settings import TuningSettings

FULL = Batch(
    image_features=torch.eye(2),
    norms=torch.tensor([2.0, 3.0]),
    targets=torch.tensor([0, 1]),
    per_image=torch.ones(2, 4),
)


def test_a_batch_gives_what_it_has() -> None:
    assert torch.equal(FULL.image_features, torch.eye(2))
    assert torch.equal(FULL.raw_features, torch.diag(torch.tensor([2.0, 3.0])))
    assert torch.equal(FULL.targets, torch.tensor([0, 1]))
    assert torch.equal(FULL.per_image, torch.ones(2, 4))


def test_zero_shot_is_the_scaled_cosine_with_the_template_s_texts(mini: FrozenClip) -> None:
    made = PromptModule(mini, TuningSettings(template="a sketch of a {}."))
    texts = mini.text.encode(mini.text.texts(("cat", "dog"), "a sketch of a {}."))
    shown = made.zero_shot(texts, ("cat", "dog"))
    assert torch.allclose(shown, mini.logit_scale * texts @ texts.T, atol=1e-4)
    assert shown.argmax(dim=1).tolist() == [0, 1]
    assert made.private(1) == EMPTY
    assert (made.uses_image_encoder, made.per_image) == (False, None)
