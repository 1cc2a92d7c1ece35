"""TRIP against float64: loss, logits and how the prompts start; counts as published."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import open_clip
import pytest
import torch

from fednode.clip.backbone import ENSEMBLE, Backbone
from fednode.clip.settings import PLAIN
from fednode.errors import ConfigError
from fednode.learn.objective import Batch
from fednode.policies.trip.config import TRIPConfig
from fednode.policies.trip.exchange import TRIP as Exchange
from fednode.policies.trip.objective import CAPACITIES
from fednode.policies.trip.objective import Objective as TRIP
from tests.unit.learn.jobs import batch, given, leaves
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    Wide,
    drawn,
    features,
    pixels,
    softmax,
    tuning,
    unit,
    wide,
)


@pytest.mark.parametrize("teacher", ["template", "ensemble"])
@pytest.mark.parametrize("teach", [0.0, 0.6])
def test_loss_and_logits_against_float64(
    model: Backbone, teacher: Any, teach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one("{}") for one in open_clip.OPENAI_IMAGENET_TEMPLATES] == list(ENSEMBLE)
    few = ENSEMBLE[5:8]  # eighty take seconds
    monkeypatch.setattr("fednode.policies.trip.objective.ENSEMBLE", few)
    config = TRIPConfig(experts=2, teach=teach, teacher=teacher)
    one = TRIP(model, tuning(template="a sketch of a {}."), config)
    assert one.constant is not None
    known = one.constant.of(pixels())
    assert known.shape == (5, *one.constant.shape)
    assert not torch.equal(known[:, 0], known[:, 1])
    start = drawn(one.initial(1), 3)
    prompts = leaves(start, gradient=True)
    classes = model.text.tokens(CLASSES, 3)

    def logits(place: int) -> Wide:
        found = np.zeros((5, 3))
        for at in range(5):
            mixed = sum(
                wide(known)[at, place, e] * start["experts"][e].astype(np.float64) for e in range(2)
            )
            texts = wide(model.text.encode(classes, torch.tensor(mixed).float()))
            found[at] = model.logit_scale * texts @ wide(features())[at]
        return found

    images: dict[str, Any] = {"features": features(), "constants": known}
    shown = one.classifier(prompts, CLASSES)(Batch(**images))
    assert np.allclose(wide(shown), logits(1), atol=1e-3)
    written = ["a sketch of a {}."]
    if teacher == "ensemble":
        written = list(few)
    texts = [wide(model.text.encode(model.text.texts(CLASSES, each))) for each in written]
    p0 = softmax(model.logit_scale * wide(features()) @ unit(np.mean(texts, axis=0)).T)
    log_p = np.log(softmax(logits(0)))
    wanted = -log_p[np.arange(5), LABELS.numpy()].mean() - teach * (p0 * log_p).sum(axis=1).mean()
    loss = one.begin(given(prompts, CLASSES)).loss(batch(LABELS, **images))
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-3)
    torch.autograd.backward(loss)
    assert prompts["experts"].grad is not None
    assert float(prompts["experts"].grad.abs().amax(dim=(1, 2)).min()) > 0


def test_the_tokens_are_open_clip_s_after_the_last_block(model: Backbone) -> None:
    visual = model.model.visual
    with torch.no_grad():
        wanted = visual.transformer(visual._embeds(pixels()))
    assert torch.allclose(model.vision.states(pixels()), wanted, atol=1e-5)


def test_experts_start_apart(model: Backbone) -> None:
    """The released code's experts share one storage, and so one start."""
    found = TRIP(model, tuning(), TRIPConfig(experts=3)).initial(1)["experts"]
    assert found.shape == (3, 3, 32)
    assert not np.array_equal(found[0], found[1])
    words = TRIP(model, tuning(init_words="a photo of", init_std=0.01), TRIPConfig(experts=2))
    near = words.initial(1)["experts"] - wide(model.text.embed_words("a photo of"))
    assert 0 < float(np.abs(near).max()) < 0.1


def test_more_experts_than_tokens_are_a_sentence(model: Backbone) -> None:
    with pytest.raises(ConfigError, match=r"policy.experts is 8, .* 5 tokens an image"):
        TRIP(model, tuning(), TRIPConfig(experts=8))


@pytest.mark.parametrize(("experts", "length", "count"), [(4, 32, 65_536), (2, 1, 1_024)])
def test_counts_and_defaults_are_as_published(
    experts: int, length: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ViT-B/16: 0.065 M numbers, and 0.001 M for TRIP-Lite; METHODS section 9.3."""

    class Sizes:
        template = PLAIN

        class text:
            width = 512

        class vision:
            width, length = 768, 197

    monkeypatch.setattr("fednode.learn.texts.ClassTexts.__init__", lambda self, backbone: None)
    config = TRIPConfig(experts=experts)
    one = TRIP(Sizes, tuning(context_length=length), config)  # type: ignore[arg-type]
    assert math.prod(one.initial(1).shapes["experts"]) == count
    assert TRIPConfig().experts * Exchange.tuning["context_length"] == 128  # type: ignore[operator]
    assert (CAPACITIES, config.teach) == ((1.0, 2.0), 1.0)
