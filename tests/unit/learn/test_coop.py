"""The loss and the predictions against closed forms in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.errors import ConfigError
from fednode.learn.coop import CONTEXT as NAME
from fednode.learn.coop import CoOp
from fednode.learn.settings import TuningSettings
from tests.unit.learn.jobs import logits, loss

CLASSES = ("cat", "airplane", "palm tree")


def objective(mini: FrozenClip, **settings: object) -> CoOp:
    return CoOp(mini, TuningSettings(**settings))  # type: ignore[arg-type]


def batch(mini: FrozenClip) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit features [6, D] and labels [6]."""
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(6, mini.model.visual.output_dim, generator=generator)
    return torch.nn.functional.normalize(features, dim=1), torch.tensor([0, 1, 2, 2, 1, 0])


def prompts(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {NAME: torch.from_numpy(np.array(tensors[NAME]))}


def test_a_normal_start_has_its_deviation_and_is_equal_for_equal_seeds(mini: FrozenClip) -> None:
    one = objective(mini, context_length=16, init_std=0.02)
    start = one.initial(1)
    assert start.shapes == {NAME: (16, mini.text.width)}
    assert float(np.std(start[NAME])) == pytest.approx(0.02, rel=0.05)
    assert start == one.initial(1)
    assert start != one.initial(2)


def test_a_start_from_words_gives_the_hand_written_prompt(mini: FrozenClip) -> None:
    one = objective(mini, init_words="a photo of a")
    features, _ = batch(mini)
    learned = logits(one, prompts(one.initial(1)), features, CLASSES)
    assert (learned - one.zero_shot(features, CLASSES)).abs().max() < 1e-4


def test_words_of_another_length_are_refused(mini: FrozenClip) -> None:
    with pytest.raises(ConfigError, match=r"'a photo' is 2 tokens and tuning.context_length is 4"):
        objective(mini, init_words="a photo").initial(1)


def texts(mini: FrozenClip, tensors: Tensors) -> np.ndarray:
    """Return the classes' text features in float64, from open_clip's own modules."""
    model = mini.model
    with torch.no_grad():
        ids = mini.tokenizer([f"X X X X {name}." for name in CLASSES])
        embedded = model.token_embedding(ids)
        embedded[:, 1:5] = torch.from_numpy(np.array(tensors[NAME]))
        x = model.transformer(embedded + model.positional_embedding, attn_mask=model.attn_mask)
        x = model.ln_final(x)[torch.arange(len(ids)), ids.argmax(dim=-1)] @ model.text_projection
    features = x.double().numpy()
    return np.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))


def test_the_loss_is_cross_entropy_of_scaled_cosines(mini: FrozenClip) -> None:
    one = objective(mini)
    tensors = one.initial(3)
    features, labels = batch(mini)
    wanted_logits = mini.logit_scale * features.double().numpy() @ texts(mini, tensors).T
    shifted = wanted_logits - wanted_logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    wanted = -log_probabilities[np.arange(6), labels.numpy()].mean()
    ours = loss(one, prompts(tensors), features, labels, CLASSES)
    assert float(ours) == pytest.approx(wanted, rel=1e-5)
    assert np.allclose(logits(one, prompts(tensors), features, CLASSES), wanted_logits, atol=1e-3)


def test_knowledge_weight_adds_the_distance_to_the_hand_written_text(mini: FrozenClip) -> None:
    plain, pulled = objective(mini), objective(mini, knowledge_weight=8.0)
    tensors = plain.initial(3)
    features, labels = batch(mini)
    with torch.no_grad():
        written = mini.model.encode_text(mini.tokenizer([f"a photo of a {n}." for n in CLASSES]))
    written = written.double().numpy()
    written /= np.linalg.norm(written, axis=1, keepdims=True)
    distance = 8.0 * (1.0 - (written * texts(mini, tensors)).sum(axis=1)).mean()
    added = loss(pulled, prompts(tensors), features, labels, CLASSES) - loss(
        plain, prompts(tensors), features, labels, CLASSES
    )
    assert float(added) == pytest.approx(distance, rel=1e-4)


def test_the_gradient_of_the_loss_against_finite_differences(mini: FrozenClip) -> None:
    one = objective(mini, knowledge_weight=1.0)
    features, labels = batch(mini)
    start = prompts(one.initial(3))[NAME]
    leaf = start.clone().requires_grad_()
    torch.autograd.backward(loss(one, {NAME: leaf}, features, labels, CLASSES))
    assert leaf.grad is not None
    # Along the gradient itself the slope is largest, so float32 resolves it best.
    direction = leaf.grad / leaf.grad.norm()
    step = 3e-4
    with torch.no_grad():
        up, down = (
            loss(one, {NAME: start + sign * step * direction}, features, labels, CLASSES)
            for sign in (1, -1)
        )
    slope = float(up - down) / (2 * step)
    assert slope == pytest.approx(float(leaf.grad.norm()), rel=0.02)
