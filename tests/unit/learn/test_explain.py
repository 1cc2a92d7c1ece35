"""Nearest words, and maps of what matters in an image, against computations by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.errors import ModelError
from fednode.learn.coop import CoOp
from fednode.learn.explain import Explainer
from fednode.policies.plan import PlanConfig
from tests.unit.clip import tiny
from tests.unit.policies.steps import config_of
from tests.unit.policies.tiny import CLASSES, drawn, tuning, wide


@pytest.fixture
def images(files: list[Path]) -> list[Path]:
    return files[:3]


def made(model: FrozenClip, policy: str) -> tuple[Explainer, Tensors]:
    config = PlanConfig(reduction=8, description="name") if policy == "plan" else config_of(policy)
    kind = registry.prompt_module(policy)
    prompts = drawn(kind(model, tuning(), config).initial(1), 2)
    return Explainer(model, partial(kind, settings=tuning(), config=config), prompts), prompts


# Words --------------------------------------------------------------------------------------------


def test_words_are_the_nearest_embeddings(model: FrozenClip) -> None:
    one, prompts = made(model, "zerodfl")
    (rows,) = one.words(3).values()
    table = wide(model.model.token_embedding.weight)
    ends = (model.tokenizer.sot_token_id, model.tokenizer.eot_token_id)
    for vector, row in zip(prompts["context"].astype(np.float64), rows, strict=True):
        apart = np.linalg.norm(table - vector, axis=1)
        apart[list(ends)] = np.inf
        order = np.argsort(apart)[:3]
        assert [near.word for near in row] == [model.tokenizer.decode([at]).strip() for at in order]
        assert np.allclose([near.distance for near in row], apart[order], atol=1e-4)


def test_a_vector_that_is_a_word_is_that_word(model: FrozenClip) -> None:
    words = model.text.embed_words("a photo of").detach().numpy()
    one = Explainer(model, partial(CoOp, settings=tuning()), Tensors({"context": words}))
    found = one.words(1)["context"]
    assert [row[0].word for row in found] == ["a", "photo", "of"]
    assert max(row[0].distance for row in found) < 1e-3


def test_contexts_have_the_names_of_what_is_exchanged(model: FrozenClip) -> None:
    one, prompts = made(model, "plan")
    found = one.words(1)
    assert list(found) == ["text"]  # the first of its deep prompts
    assert len(found["text"]) == prompts["text"].shape[1]


def test_policies_without_word_vectors_or_maps_are_named(
    model: FrozenClip, images: Sequence[Path]
) -> None:
    one, two = (made(model, name)[0] for name in ("fedclip", "fedotp"))
    with pytest.raises(ModelError, match="no word vectors"):
        one.words(1)
    with pytest.raises(ModelError, match="classify by each patch of an image"):
        two.maps(images, ["cat"] * 3, CLASSES)


# Maps ---------------------------------------------------------------------------------------------


def look(model: FrozenClip, path: Path) -> Tensor:
    return model.preprocess(Image.open(path).convert("RGB"))[None]


@pytest.mark.parametrize("policy", ["zerodfl", "plan"])
def test_a_map_says_how_much_the_logit_falls_where_a_part_is_hidden(
    policy: str, model: FrozenClip, images: Sequence[Path]
) -> None:
    one, prompts = made(model, policy)
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
    for path, name, *found in zip(images, names, plain, tuned, strict=True):
        for shown, (prompt, texts) in zip(found, ((None, written), (visual, learned)), strict=True):

            def logit(pixels: Tensor, prompt: Tensor | None = prompt, texts: Tensor = texts) -> Any:
                seen = model.vision.encode(pixels, prompt).features[0]
                return float(seen @ texts[CLASSES.index(name)])  # noqa: B023

            assert np.allclose(shown, by_hand(logit, look(model, path)), atol=1e-4)


def by_hand(logit: Callable[[Tensor], float], pixels: Tensor) -> Any:
    """Return the map of an image of 32 x 32: a quarter of its side is hidden at each of 8 x 8."""
    falls, near = (
        np.zeros((8, 8)),
        np.abs(np.arange(32) + 0.5 - (4 * np.arange(8) + 2)[:, None]) < 4,
    )
    for row in range(8):
        for column in range(8):
            hidden = pixels.clone()
            hidden[0, :, torch.from_numpy(np.outer(near[row], near[column]))] = 0.0
            falls[row, column] = max(0.0, logit(pixels) - logit(hidden))
    return falls / falls.max()


def test_the_texts_of_a_map_are_encoded_once(model: FrozenClip, images: Sequence[Path]) -> None:
    one, _ = made(model, "zerodfl")
    asked: list[Any] = []
    encode = one._text.encode
    one._text.encode = lambda *given: asked.append(given) or encode(*given)  # type: ignore[func-returns-value, method-assign]
    one.maps(images, ("saxophone", "cat", "cat"), CLASSES)
    assert len(asked) == 2  # the learned and the hand-written prompt


def test_features_are_those_of_the_model_itself(model: FrozenClip, images: Sequence[Path]) -> None:
    one, _ = made(model, "plan")
    pixels = torch.cat([look(model, path) for path in images])
    features = F.normalize(model.encode_raw(pixels), dim=-1)
    assert np.allclose(one.features(images), wide(features), atol=1e-5)
    rough, _ = made(tiny.frozen(tiny.clip(3), precision="bfloat16"), "plan")
    assert np.array_equal(rough.features(images), one.features(images)), "all is in float32"
