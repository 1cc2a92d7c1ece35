"""Nearest words, class activation maps and features against open_clip's weights in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fednode import registry
from fednode.clip import backbone
from fednode.clip.backbone import Backbone
from fednode.clip.settings import ModelSettings
from fednode.core.types import Tensors
from fednode.errors import ModelError
from fednode.learn import explain
from fednode.learn.explain import Explainer
from fednode.policies.plan.config import PlanConfig
from fednode.policies.zerodfl.config import ZeroDFLConfig
from tests.unit.policies.tiny import CLASSES, drawn, frozen, tuning, wide

CONFIGS: dict[str, Any] = {
    "zerodfl": ZeroDFLConfig(),
    "plan": PlanConfig(reduction=8, description="name"),
}


@pytest.fixture(scope="module")
def model() -> Backbone:
    return frozen()


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    noise = np.random.default_rng(1)
    paths = [tmp_path / f"{at}.png" for at in range(3)]
    for path in paths:
        Image.fromarray(noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(path)
    return paths


def made(
    model: Backbone, policy: str, monkeypatch: pytest.MonkeyPatch, config: Any = None
) -> tuple[Explainer, Tensors]:
    monkeypatch.setattr(backbone, "load", lambda settings: model)
    config, kind = config or CONFIGS[policy], registry.objective(policy)
    prompts = drawn(kind(model, tuning(), config).initial(1), 2)
    return Explainer(ModelSettings(), tuning(), kind, config, prompts), prompts


# Words --------------------------------------------------------------------------------------------


def test_words_are_the_nearest_embeddings(model: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    one, prompts = made(model, "zerodfl", monkeypatch)
    (rows,) = one.words(3).values()
    table = wide(model.model.token_embedding.weight)
    ends = (model.tokenizer.sot_token_id, model.tokenizer.eot_token_id)
    for vector, row in zip(prompts["context"].astype(np.float64), rows, strict=True):
        apart = np.linalg.norm(table - vector, axis=1)
        apart[list(ends)] = np.inf
        order = np.argsort(apart)[:3]
        assert [near.word for near in row] == [model.tokenizer.decode([at]).strip() for at in order]
        assert np.allclose([near.distance for near in row], apart[order], atol=1e-4)


def test_a_vector_that_is_a_word_is_that_word(
    model: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbone, "load", lambda settings: model)
    kind = registry.objective("zerodfl")
    words = model.text.embed_words("a photo of").detach().numpy()
    one = Explainer(
        ModelSettings(), tuning(), kind, CONFIGS["zerodfl"], Tensors({"context": words})
    )
    found = one.words(1)["context"]
    assert [row[0].word for row in found] == ["a", "photo", "of"]
    assert max(row[0].distance for row in found) < 1e-3


def test_contexts_have_the_names_of_what_is_exchanged(
    model: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, prompts = made(model, "plan", monkeypatch)
    found = one.words(1)
    assert list(found) == ["text"]  # the first of its deep prompts
    assert len(found["text"]) == prompts["text"].shape[1]


def test_prompts_without_word_vectors_are_named(
    model: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = registry.policy("fedclip").config_type()
    one, _ = made(model, "fedclip", monkeypatch, config)
    with pytest.raises(ModelError, match="no word vectors"):
        one.words(1)


# Maps ---------------------------------------------------------------------------------------------


def by_hand(model: Any, pixels: Tensor, prompts: Tensor | None, texts: Tensor, at: int) -> Any:
    """Return one image's map from open_clip's weights, attention written out, in float64."""
    tower = model.visual.double()
    x = tower.conv1(pixels.double()).flatten(2).transpose(1, 2)
    x = torch.cat([tower.class_embedding.expand(1, 1, -1), x], dim=1) + tower.positional_embedding
    x = tower.ln_pre(x)
    patches = x.shape[1] - 1
    kept: list[Tensor] = []
    for number, block in enumerate(tower.transformer.resblocks):
        if prompts is not None:
            fresh = prompts[number][None].double()
            fresh = tower.ln_pre(fresh) if number == 0 else fresh
            x = torch.cat([x[:, : 1 + patches], fresh], dim=1)
        heads = block.attn.num_heads
        qkv = block.ln_1(x) @ block.attn.in_proj_weight.T + block.attn.in_proj_bias
        q, k, v = (
            part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in qkv.chunk(3, dim=2)
        )
        shares = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
        shares = shares if shares.requires_grad else shares.requires_grad_()
        kept.append(shares)
        x = x + block.attn.out_proj((shares @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.ln_2(x))
    pooled = tower.ln_post(x[:, 0]) @ tower.proj
    logits = torch.nn.functional.normalize(pooled, dim=-1) @ texts.double().T
    gradients = torch.autograd.grad(logits[0, at] * model.logit_scale.exp().double(), kept)
    total = np.zeros(patches)
    for shares, gradient in zip(kept, gradients, strict=True):
        weighted = wide(shares * gradient)[0, :, 0, 1 : 1 + patches]
        total += np.maximum(weighted, 0).mean(axis=0)
    model.visual.float()
    return (total / total.max()).reshape(explainer_grid(model))


def explainer_grid(model: Any) -> tuple[int, int]:
    rows, columns = model.visual.grid_size
    return rows, columns


def look(model: Backbone, path: Path) -> Tensor:
    return model.preprocess(Image.open(path).convert("RGB"))[None]


@pytest.mark.parametrize("policy", ["zerodfl", "plan"])
def test_maps_are_gradients_times_attention(
    policy: str, model: Backbone, images: Sequence[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, prompts = made(model, policy, monkeypatch)
    monkeypatch.setattr(explain, "LOOKED_AT_ONCE", 2)  # three images are two batches
    names = ("saxophone", "cat", "saxophone")
    plain, tuned = one.maps(images, names, CLASSES)
    held = {name: torch.from_numpy(array.copy()) for name, array in prompts.items()}
    tokens = model.text.tokens(CLASSES, 3)
    written = model.text.encode(model.text.texts(CLASSES, model.template))
    visual = None
    learned = model.text.encode(tokens, held.get("context"))
    if policy == "plan":
        visual, learned = (
            held["visual"],
            model.text.encode(tokens, held["text"][0], held["text"][1:]),
        )
    for path, name, before, after in zip(images, names, plain, tuned, strict=True):
        at, pixels = CLASSES.index(name), look(model, path)
        assert np.allclose(before, by_hand(model.model, pixels, None, written, at), atol=1e-4)
        assert np.allclose(after, by_hand(model.model, pixels, visual, learned, at), atol=1e-4)


# Features -----------------------------------------------------------------------------------------


def test_features_are_the_towers_with_and_without_visual_prompts(
    model: Backbone, images: Sequence[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, prompts = made(model, "plan", monkeypatch)
    plain, tuned = one.features(images)
    pixels = torch.cat([look(model, path) for path in images])
    assert np.allclose(plain, wide(model.encode_images(pixels)), atol=1e-5)
    visual = torch.from_numpy(prompts["visual"].copy())
    assert tuned is not None
    assert np.allclose(tuned, wide(model.vision.encode(pixels, visual).features), atol=1e-5)
    untouched, _ = made(model, "zerodfl", monkeypatch)
    assert untouched.features(images)[1] is None
