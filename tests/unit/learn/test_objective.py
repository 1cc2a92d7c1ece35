"""What most objectives share: the fields of a batch, a plain tuning, zero-shot by texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fednode.clip.backbone import Backbone
from fednode.core.types import EMPTY
from fednode.learn.objective import Batch, InTurns, Plain, Written
from fednode.learn.settings import TuningSettings

FULL = Batch(
    features=torch.eye(2),
    norms=torch.tensor([2.0, 3.0]),
    labels=torch.tensor([0, 1]),
    constants=torch.ones(2, 4),
)


def test_a_batch_gives_what_it_has() -> None:
    assert torch.equal(FULL.seen, torch.eye(2))
    assert torch.equal(FULL.raw, torch.diag(torch.tensor([2.0, 3.0])))
    assert torch.equal(FULL.truth, torch.tensor([0, 1]))
    assert torch.equal(FULL.known, torch.ones(2, 4))


def test_tokens_are_looked_at_before_pixels() -> None:
    pixels, tokens = torch.zeros(1), torch.ones(1)
    assert Batch(pixels=pixels).looked is pixels
    assert Batch(pixels=pixels, tokens=tokens).looked is tokens


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda batch: batch.seen, "works on features"),
        (lambda batch: batch.raw, "features that are not unit"),
        (lambda batch: batch.known, "needs its constants"),
        (lambda batch: batch.looked, "looks at the images"),
        (lambda batch: batch.truth, "images have labels"),
    ],
)
def test_what_a_batch_has_not_is_named(read: Callable[[Batch], object], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        read(Batch())


def test_a_plain_tuning_is_its_loss_and_carries_nothing() -> None:
    tuning = Plain(lambda batch: batch.seen.sum())
    assert float(tuning.loss(FULL)) == 2.0
    tuning.stepped()
    assert tuning.carry() == {}
    assert not isinstance(tuning, InTurns)


def test_zero_shot_is_the_scaled_cosine_with_the_template_s_texts(mini: Backbone) -> None:
    made = Written(mini, TuningSettings(template="a sketch of a {}."))
    texts = mini.text.encode(mini.text.texts(("cat", "dog"), "a sketch of a {}."))
    shown = made.zero_shot(texts, ("cat", "dog"))
    assert torch.allclose(shown, mini.logit_scale * texts @ texts.T, atol=1e-4)
    assert shown.argmax(dim=1).tolist() == [0, 1]
    assert made.private(1) == EMPTY
    assert (made.looks, made.constant) == (False, None)
