"""Image towers of timm with prompts, against timm's own forward pass with hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.timm_vision import TimmTower, tower_of
from fednode.clip.vision import VisionTower
from fednode.errors import ModelError
from tests.unit.clip import eyes, tiny


@pytest.fixture(scope="module", params=eyes.PROMPTED)
def twin(request: pytest.FixtureRequest) -> Any:
    model = eyes.twin(eyes.PROMPTED[request.param])
    return request.param, model, tower_of(model, request.param)


def images(model: Any) -> Tensor:
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
    found: Tensor = model.visual(images(model))
    for handle in handles:
        handle.remove()
    return found


def test_features_without_prompts_equal_open_clip(twin: Any) -> None:
    _, model, tower = twin
    wanted = model.encode_image(images(model))
    for given in (images(model), tower.tokens(images(model))):
        assert (tower.encode(given).raw - wanted).abs().max() < 1e-5
    assert tower.tokens(images(model)).shape == (3, tower.num_tokens, tower.width)


@pytest.mark.parametrize("depth", [1, 3])
def test_prompts_equal_hooks_in_timms_forward_pass(twin: Any, depth: int) -> None:
    _, model, tower = twin
    prompts = drawn(depth, 2, tower.width).requires_grad_()
    weights = drawn(3, tiny.EMBED)
    ours, wanted = tower.encode(images(model), prompts).raw, hooked(model, prompts)
    assert (ours - wanted).abs().max() < 1e-5
    assert (ours - tower.encode(images(model)).raw).abs().max() > 1e-3
    (found,) = torch.autograd.grad((ours * weights).sum(), prompts)
    (other,) = torch.autograd.grad((wanted * weights).sum(), prompts)
    assert (found - other).abs().max() < 1e-4 * other.abs().max()


def test_a_tower_of_timm_gives_no_query(twin: Any) -> None:
    _, model, tower = twin
    seen = tower.encode(images(model), drawn(1, 2, tower.width))
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
    normed = trunk.forward_features(images(model))
    assert normed.shape == (3, tower.num_tokens, 32)
    wanted = model.visual.head(trunk.fc_norm(normed[:, trunk.num_prefix_tokens :]))
    assert (tower.patches(images(model)) - F.normalize(wanted, dim=-1)).abs().max() < 1e-5
    if kind in {"average", "ViTamin"}:
        alone = model.visual.head(trunk.fc_norm(normed.mean(dim=1)))
        assert (alone - tower.encode(images(model)).raw).abs().max() < 1e-5


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
