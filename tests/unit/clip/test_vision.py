"""What the vision tower refuses, keeps and does not compute; its arithmetic is a property test."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from open_clip.model import CLIP
from torch import Tensor

from fednode.clip import vision
from fednode.clip.vision import VisionTower
from fednode.errors import ModelError
from tests.unit.clip import eyes, tiny


def pixels(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(3, 2, 32), (0, 2, 32), (1, 2, 31), (2, 32)])
def test_prompts_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    tower = VisionTower(tiny.clip(), "tiny")
    with pytest.raises(ModelError, match=r"tiny takes \[1 to 2, any number, 32\]"):
        tower.encode(pixels(), torch.zeros(shape))


def test_only_the_prompts_get_a_gradient() -> None:
    model = tiny.clip()
    prompts = torch.zeros(2, 3, 32, requires_grad=True)
    out = VisionTower(model, "tiny").encode(pixels(), prompts).features
    torch.autograd.backward(out[:, 0].sum())
    assert prompts.grad is not None
    assert prompts.grad.abs().min() > 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_prompts_that_are_replaced_are_projected_once_for_all_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, ...]] = []
    inner = vision._with

    def spy(block: object, own: object, fresh: Tensor, count: int) -> tuple[Tensor, Tensor]:
        seen.append(tuple(fresh.shape))
        return inner(block, own, fresh, count)  # type: ignore[arg-type]

    monkeypatch.setattr(vision, "_with", spy)
    VisionTower(tiny.clip(), "tiny").encode(pixels(5), torch.zeros(2, 3, 32))
    assert seen == [(1, 3, 32), (1, 3, 32)]


def test_encoding_goes_on_from_tokens_to_the_same_bits() -> None:
    tower, images = VisionTower(tiny.hybrid(), "tiny"), torch.randn(3, 3, 64, 64)
    assert (tower.num_tokens, tower.width) == (18, 32)
    tokens = tower.tokens(images)
    assert tokens.shape == (3, 18, 32)
    assert not tokens.requires_grad
    prompts = torch.randn(2, 3, 32)
    whole, after = tower.encode(images, prompts), tower.encode(tokens, prompts)
    assert torch.equal(whole.features, after.features)
    assert torch.equal(whole.keys, after.keys)


def test_a_trunk_stays_in_float32_where_products_are_rough() -> None:
    images = torch.randn(3, 3, 64, 64)
    exact, rough = (
        VisionTower(tiny.hybrid(), "tiny", dtype) for dtype in (torch.float32, torch.bfloat16)
    )
    assert torch.equal(exact.tokens(images), rough.tokens(images))
    assert not torch.equal(exact.encode(images).features, rough.encode(images).features)


def test_it_knows_whether_tokens_are_fewer_than_pixels() -> None:
    def compact(**vision: Any) -> bool:
        return VisionTower(
            CLIP(tiny.EMBED, {**tiny.VISION, **vision}, tiny.TEXT), ""
        ).tokens_smaller_than_pixels

    assert compact()
    assert not compact(patch_size=2)
    assert not VisionTower(eyes.OTHERS["ResNet"](), "").tokens_smaller_than_pixels
    assert VisionTower(tiny.hybrid(), "").tokens_smaller_than_pixels
