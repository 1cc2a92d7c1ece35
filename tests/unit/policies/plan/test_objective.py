"""PLAN's equations 8 to 16 against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.learn.prompt_module import Batch
from fednode.policies import plan as aggregator
from fednode.policies.plan import AGGREGATORS, PROMPTS
from fednode.policies.plan import PlanPrompts as Objective
from tests.unit.learn.jobs import batch, given, job, leaves, started
from tests.unit.policies.plan.small import TOWERS, objective, some
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    pixels,
    softmax,
    wide,
)


def probabilities(one: Objective, model: FrozenClip, prompts: Tensors) -> np.ndarray:
    """Equations 6 and 8 from the towers' features, in float64."""
    held = leaves(prompts)
    tokens = model.text.tokens(CLASSES, 3)
    texts = wide(model.text.encode(tokens, held["text"][0], held["text"][1:]))
    images = wide(model.vision.encode(pixels(), held["visual"]).features)
    return softmax(model.logit_scale * images @ texts.T)


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_the_first_stage_is_cross_entropy_and_the_pull_to_the_global_prompts(
    model: FrozenClip, kl: float
) -> None:
    one, local, world = objective(model, kl=kl), some(1), some(2)
    p, taught = (probabilities(one, model, each) for each in (local, world))
    ce = -np.log(p[np.arange(len(LABELS)), LABELS.numpy()]).mean()
    pull = (taught * np.log(taught / p)).sum(axis=1).mean()
    assert pull > 0.01
    inputs = started(one, given(leaves(local), CLASSES, job(PROMPTS), leaves(world)))
    for _ in range(2):  # the second time the teacher is remembered
        found = float(one.loss(batch(LABELS, pixels=pixels()), inputs))
        assert found == pytest.approx(ce + kl * pull, rel=1e-4)


@pytest.mark.parametrize(
    ("description", "text"), [("sentence", "a photo of a {}."), ("name", "{}.")]
)
@pytest.mark.parametrize("depth", [0, 1])
def test_text_prompts_stand_before_the_description(
    model: FrozenClip, description: str, text: str, depth: int
) -> None:
    """Equation 2, run through open_clip's own blocks at full length; depth 1 is shallow."""
    one, held = objective(model, description=description, depth=depth), some(1)
    clip: Any = model.model
    kept = Tensors({name: x[: depth or len(x)] for name, x in held.items()})
    prompts = leaves(kept)["text"]
    room = prompts.shape[1]
    rows = [
        [49406, *[0] * room, *model.tokenizer.encode(text.format(name)), 49407] for name in CLASSES
    ]
    ends = torch.tensor([len(row) - 1 for row in rows])
    size = clip.positional_embedding.shape[0]
    ids = torch.tensor([row + [0] * (size - len(row)) for row in rows])
    with torch.no_grad():
        x = clip.token_embedding(ids)
        x[:, 1 : 1 + room] = prompts[0]
        x = x + clip.positional_embedding
        for number, block in enumerate(clip.transformer.resblocks):
            if 0 < number < len(prompts):
                x[:, 1 : 1 + room] = prompts[number]
            x = block(x, attn_mask=clip.attn_mask)
        read = clip.ln_final(x)[torch.arange(len(rows)), ends] @ clip.text_projection
        texts = wide(torch.nn.functional.normalize(read, dim=1))
        images = wide(model.vision.encode(pixels(), leaves(kept)["visual"]).features)
    shown = one.classifier(leaves(kept), CLASSES)(Batch(pixels=pixels()))
    assert np.allclose(wide(shown), model.logit_scale * images @ texts.T, atol=1e-3)


def test_depth_bounds_the_blocks_with_prompts(model: FrozenClip) -> None:
    shapes = objective(model, depth=1).initial(1).shapes
    assert (shapes["text"], shapes["visual"]) == ((1, 3, 32), (1, 3, 32))
    assert shapes[f"{aggregator.AGGREGATOR}text.asks"] == (1, 3, 32)
    assert objective(model, depth=9).initial(1).shapes == objective(model).initial(1).shapes


@pytest.mark.parametrize("teacher", ["zero_shot", "none"])
def test_in_round_one_zero_shot_teaches(model: FrozenClip, teacher: str) -> None:
    one, local = objective(model, first_teacher=teacher), some(1)
    p = probabilities(one, model, local)
    images = wide(model.vision.encode(pixels()).features)
    taught = softmax(model.logit_scale * images @ wide(one.handwritten(CLASSES)).T)
    wanted = -np.log(p[np.arange(len(LABELS)), LABELS.numpy()]).mean()
    if teacher == "zero_shot":
        wanted += (taught * np.log(taught / p)).sum(axis=1).mean()
    inputs = started(one, given(leaves(local), CLASSES, job(PROMPTS)))
    found = float(one.loss(batch(LABELS, pixels=pixels()), inputs))
    assert found == pytest.approx(wanted, rel=1e-4)


def test_the_second_stage_trains_the_aggregators_alone(model: FrozenClip) -> None:
    one = objective(model)
    start = one.initial(1)
    _, weights = aggregator.split(start)
    local = {f"{at:03d}/{name}": x for at in range(3) for name, x in some(at).items()}
    prompts = leaves(weights, gradient=True)
    inputs = started(one, given(prompts, CLASSES, job(AGGREGATORS), leaves(Tensors(local))))
    loss = one.loss(batch(LABELS, pixels=pixels()), inputs)
    torch.autograd.backward(loss)
    assert all(leaf.grad is not None for leaf in prompts.values())
    merged = {
        name: aggregator.global_prompts(
            weights, name, [local[f"{at:03d}/{name}"] for at in range(3)], False
        )
        for name in TOWERS
    }
    p = probabilities(one, model, Tensors(merged))
    wanted = -np.log(p[np.arange(len(LABELS)), LABELS.numpy()]).mean()
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-4)


def test_predictions_use_the_global_prompts(model: FrozenClip) -> None:
    one, prompts = objective(model), some(2)
    found = one.classifier(leaves(prompts), CLASSES)
    shown = found(Batch(pixels=pixels())).softmax(dim=1)
    assert np.allclose(wide(shown), probabilities(one, model, prompts), atol=1e-5)
