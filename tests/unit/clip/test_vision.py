"""What the vision tower refuses, keeps and does not compute; its arithmetic is a property test."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from torch import Tensor

from fednode.clip import vision
from fednode.clip.timm_vision import TimmTower, tower_of
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


# Towers of timm, against timm's own forward pass with hooks ---------------------------------------


@pytest.fixture(scope="module", params=eyes.PROMPTED)
def twin(request: pytest.FixtureRequest) -> Any:
    model = eyes.twin(eyes.PROMPTED[request.param])
    return request.param, model, tower_of(model, request.param)


def images_of(model: Any) -> Tensor:
    side = model.visual.image_size[0]
    return torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))


def drawn(*shape: int) -> Tensor:
    return 0.3 * torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def hooked(model: Any, prompts: Tensor) -> Tensor:
    """Encode by timm's forward pass; prompts stand behind the prefix, which has no positions."""
    trunk, count = model.visual.trunk, prompts.shape[1]
    prefix = trunk.num_prefix_tokens
    parts = [trunk.norm_pre(prompts[:1]), *prompts[1:, None]]

    def put(number: int) -> Any:
        def hook(_: Any, words: tuple[Tensor, ...]) -> Any:
            x = words[0]
            if number < len(parts):
                skipped = prefix + (count if number else 0)
                fresh = parts[number].expand(len(x), -1, -1)
                x = torch.cat([x[:, :prefix], fresh, x[:, skipped:]], dim=1)
            return (x, *words[1:])

        return hook

    def drop(_: Any, words: tuple[Tensor, ...]) -> Any:
        return (torch.cat([words[0][:, :prefix], words[0][:, prefix + count :]], dim=1),)

    handles = [b.register_forward_pre_hook(put(at)) for at, b in enumerate(trunk.blocks)]
    handles.append(trunk.norm.register_forward_pre_hook(drop))
    found: Tensor = model.visual(images_of(model))
    for handle in handles:
        handle.remove()
    return found


def test_features_without_prompts_equal_open_clip(twin: Any) -> None:
    _, model, tower = twin
    wanted = model.encode_image(images_of(model))
    for given in (images_of(model), tower.tokens(images_of(model))):
        assert (tower.encode(given).raw - wanted).abs().max() < 1e-5
    assert tower.tokens(images_of(model)).shape == (3, tower.num_tokens, tower.width)


@pytest.mark.parametrize("depth", [1, 3])
def test_prompts_equal_hooks_in_timms_forward_pass(twin: Any, depth: int) -> None:
    _, model, tower = twin
    prompts = drawn(depth, 2, tower.width).requires_grad_()
    weights = drawn(3, tiny.EMBED)
    ours, wanted = tower.encode(images_of(model), prompts).raw, hooked(model, prompts)
    assert (ours - wanted).abs().max() < 1e-5
    assert (ours - tower.encode(images_of(model)).raw).abs().max() > 1e-3
    (found,) = torch.autograd.grad((ours * weights).sum(), prompts)
    (other,) = torch.autograd.grad((wanted * weights).sum(), prompts)
    assert (found - other).abs().max() < 1e-4 * other.abs().max()


def test_a_tower_of_timm_gives_no_query(twin: Any) -> None:
    _, model, tower = twin
    seen = tower.encode(images_of(model), drawn(1, 2, tower.width))
    assert not tower.has_class_token
    assert seen.query.numel() == seen.keys.numel() == 0


def test_patches_go_through_the_last_norm_and_projection(twin: Any) -> None:
    kind, model, tower = twin
    if kind == "SigLIP":
        with pytest.raises(ModelError, match="its tower pools by attention"):
            assert tower.patches_shape
        return
    assert tower.patches_shape == (16, tiny.EMBED)
    trunk = model.visual.trunk
    normed = trunk.forward_features(images_of(model))
    assert normed.shape == (3, tower.num_tokens, 32)
    wanted = model.visual.head(trunk.fc_norm(normed[:, trunk.num_prefix_tokens :]))
    assert (tower.patches(images_of(model)) - F.normalize(wanted, dim=-1)).abs().max() < 1e-5
    if kind in {"average", "ViTamin"}:
        alone = model.visual.head(trunk.fc_norm(normed.mean(dim=1)))
        assert (alone - tower.encode(images_of(model)).raw).abs().max() < 1e-5


@pytest.mark.parametrize("name", eyes.OTHERS)
def test_other_towers_give_features_and_say_what_they_take(name: str) -> None:
    model = eyes.OTHERS[name]().eval()
    tower = tower_of(model, name)
    assert type(tower) is VisionTower
    assert not tower.promptable
    assert not tower.has_class_token
    with pytest.raises(ModelError, match=r"takes no visual prompts .*; choose a policy of learned"):
        tower.encode(torch.zeros(1, 3, *tower.image_size))
    with torch.no_grad():
        found = model.encode_image(torch.zeros(1, 3, *tower.image_size))
    assert found.shape == (1, tiny.EMBED)


def test_a_tower_of_timms_registry_takes_prompts() -> None:
    tower = tower_of(eyes.of_registry(), "test_vit")
    assert type(tower) is TimmTower
    assert (tower.layers, tower.num_tokens) == (6, 101)
    assert tower.tokens_smaller_than_pixels == (tower.num_tokens * tower.width < 3 * 160 * 160)
