"""FedPGP against float64: prompt, loss, contrast and gradients; counts as published."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.policies.fedpgp import FedPGPConfig, FedPGPPrompts
from tests.unit.learn.jobs import leaves
from tests.unit.policies.tiny import (
    CLASSES,
    Wide,
    cross_entropy,
    drawn,
    features,
    loss_of,
    shown_by,
    tuning,
    wide,
)

SETTINGS = tuning(context_length=3, template="a sketch of a {}.")


def arrays(one: FedPGPPrompts) -> Tensors:
    return Tensors({**drawn(one.initial(1), 3), **drawn(one.private(2), 4, 0.5)})


def encoded(model: FrozenClip, context: Wide) -> Wide:
    tokens = model.text.tokens(CLASSES, 3)
    return wide(model.text.encode(tokens, torch.tensor(context).float()))


@pytest.mark.parametrize(
    ("anchor", "contrast"), [("template", 0.7), ("letters", 0.7), ("template", 0.0)]
)
def test_loss_against_float64(model: FrozenClip, anchor: Any, contrast: float) -> None:
    config = FedPGPConfig(rank=2, contrast=contrast, temperature=0.4, anchor=anchor)
    one = FedPGPPrompts(model, SETTINGS, config)
    w = {name: np.asarray(x, dtype=np.float64) for name, x in arrays(one).items()}
    common, own = (encoded(model, x) for x in (w["global"], w["global"] + w["left"] @ w["right"]))
    text = "a sketch of a {}." if anchor == "template" else "X X X {}."
    written = wide(model.text.encode(model.text.texts(CLASSES, text)))
    logits = model.logit_scale * wide(features()) @ own.T
    wanted = cross_entropy(logits)
    terms = []
    for at in range(len(CLASSES)):
        near = math.exp(float(written[at] @ common[at]) / 0.4)
        far = math.exp(float(common[at] @ own[at]) / 0.4)
        terms.append(-math.log(near / (near + far)))
    wanted += contrast * float(np.mean(terms))
    prompts = leaves(arrays(one))
    assert float(loss_of(one, prompts)) == pytest.approx(wanted, rel=1e-4)
    assert np.allclose(shown_by(one, prompts), logits, atol=1e-3)


def test_the_contrast_moves_the_private_change_through_the_own_text_alone(
    model: FrozenClip,
) -> None:
    """Gradients against differences: of all arrays, and none through the anchor."""
    one = FedPGPPrompts(model, SETTINGS, FedPGPConfig(rank=2, contrast=5.0))
    start = arrays(one)

    def loss(changed: Tensors) -> float:
        return float(loss_of(one, leaves(changed)))

    prompts = leaves(start, gradient=True)
    torch.autograd.backward(loss_of(one, prompts))
    draw = np.random.default_rng(1)
    for name, leaf in prompts.items():
        way = draw.standard_normal(start[name].shape)
        way /= np.linalg.norm(way)
        step = 2e-3
        ahead, behind = (
            loss(Tensors({**start, name: start[name] + sign * step * way})) for sign in (1, -1)
        )
        assert leaf.grad is not None
        slope = float((wide(leaf.grad) * way).sum())
        assert (ahead - behind) / (2 * step) == pytest.approx(slope, rel=0.05, abs=0.02)


def test_the_global_prompt_predicts_where_asked_or_alone(model: FrozenClip) -> None:
    config = FedPGPConfig(rank=2)
    one = FedPGPPrompts(model, SETTINGS, config)
    prompts = leaves(arrays(one))
    wanted = model.logit_scale * wide(features()) @ encoded(model, wide(prompts["global"])).T
    common = FedPGPPrompts(model, SETTINGS, FedPGPConfig(rank=2, predict="global"))
    assert np.allclose(shown_by(common, prompts), wanted, atol=1e-4)
    alone = {"global": prompts["global"]}
    assert np.allclose(shown_by(one, alone), wanted, atol=1e-4)
    assert not np.allclose(shown_by(one, prompts), wanted, atol=1e-2)


def test_the_change_starts_small_and_from_its_own_seed(model: FrozenClip) -> None:
    """No matrix is zero; with the published deviation 0.02, U V has about 0.02^2 sqrt(8)."""
    one = FedPGPPrompts(model, tuning(context_length=16, init_std=0.02), FedPGPConfig())
    first, other = one.private(1), one.private(2)
    assert first == one.private(1)
    assert first != other
    change = np.concatenate([(x["left"] @ x["right"]).ravel() for x in map(one.private, range(9))])
    assert float(change.std()) == pytest.approx(0.02**2 * 8**0.5, rel=0.1)
