"""Image towers of timm with prompts, against timm's own forward pass with hooks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CustomTextCLIP
from torch import Tensor

from fednode.clip.timm_vision import TimmTower, tower_of
from fednode.clip.vision import VisionTower
from fednode.errors import ModelError
from tests.unit.clip import tiny

SIDE: Final = 32


def _clip(name: str = "test_vit", pool: str = "", side: int = 160) -> CustomTextCLIP:
    vision = {"timm_model_name": name, "timm_pool": pool, "timm_proj": "linear"}
    return CustomTextCLIP(tiny.EMBED, {**vision, "image_size": side}, dict(tiny.TEXT))


def _with(trunk: Any) -> CustomTextCLIP:
    """Return a CLIP whose image tower is a given trunk of 32 pixels and width 32."""
    model = _clip()
    model.visual.trunk, model.visual.image_size = trunk, (SIDE, SIDE)
    model.visual.head = torch.nn.Sequential(torch.nn.Linear(32, tiny.EMBED, bias=False))
    return model


SIZES: Final[dict[str, Any]] = {
    "img_size": SIDE,
    "patch_size": 8,
    "embed_dim": 32,
    "depth": 3,
    "num_heads": 2,
    "num_classes": 0,
}


def _vit(**options: Any) -> CustomTextCLIP:
    kind: Any = importlib.import_module("timm.models.vision_transformer").VisionTransformer
    return _with(kind(**SIZES, **options))


def _eva(**options: Any) -> CustomTextCLIP:
    kind: Any = importlib.import_module("timm.models.eva").Eva
    rotary = {"use_rot_pos_emb": True, "ref_feat_shape": (4, 4)}
    return _with(kind(**SIZES, **rotary, **options))


KINDS: Final[dict[str, Callable[[], Any]]] = {
    "BiomedCLIP": lambda: _vit(global_pool="token"),
    "SigLIP": lambda: _vit(global_pool="map", class_token=False),
    "average": lambda: _vit(global_pool="avg", class_token=False, fc_norm=True),
    "registers": lambda: _vit(global_pool="token", reg_tokens=2, no_embed_class=True),
    "EVA-02": lambda: _eva(global_pool="token", qkv_fused=False, swiglu_mlp=True),
    "EVA-02, norms behind": lambda: _eva(global_pool="token", use_post_norm=True),
    "PE": lambda: _eva(global_pool="map", class_token=True, use_pre_transformer_norm=True),
}
NO_CLASS_TOKEN: Final = {"SigLIP", "average"}


@pytest.fixture(scope="module", params=KINDS)
def twin(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    model = KINDS[request.param]().float().eval().requires_grad_(False)
    draw = torch.Generator().manual_seed(2)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "logit" not in name:  # norms, scales and biases start trivial
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
        elif "blocks" in name or "pool" in name:
            parameter.mul_(6.0)  # timm begins with weights that hardly mix tokens
    return request.param, model, tower_of(model, request.param)


def images() -> Tensor:
    return torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


def drawn(*shape: int) -> Tensor:
    return 0.3 * torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def hooked(model: Any, prompts: Tensor) -> Tensor:
    """Encode by timm's forward pass; prompts stand behind the prefix, which has no positions."""
    trunk, count = model.visual.trunk, prompts.shape[1]
    prefix, before = trunk.num_prefix_tokens, [b.attn for b in trunk.blocks]
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
    for attention in before:
        if hasattr(attention, "num_prefix_tokens"):
            attention.num_prefix_tokens += count
    found: Tensor = model.visual(images())
    for attention in before:
        if hasattr(attention, "num_prefix_tokens"):
            attention.num_prefix_tokens -= count
    for handle in handles:
        handle.remove()
    return found


def test_features_without_prompts_equal_open_clip(twin: Any) -> None:
    _, model, tower = twin
    wanted = model.encode_image(images())
    for given in (images(), tower.tokens(images())):
        assert (tower.encode(given).raw - wanted).abs().max() < 1e-5
    assert tower.tokens(images()).shape == (3, tower.length, tower.width)
    assert tower.grid == (4, 4)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_prompts_equal_hooks_in_timms_forward_pass(twin: Any, depth: int) -> None:
    _, model, tower = twin
    prompts = drawn(depth, 2, tower.width).requires_grad_()
    weights = drawn(3, tiny.EMBED)
    ours, wanted = tower.encode(images(), prompts).raw, hooked(model, prompts)
    assert (ours - wanted).abs().max() < 1e-5
    assert (ours - tower.encode(images()).raw).abs().max() > 1e-3
    (found,) = torch.autograd.grad((ours * weights).sum(), prompts)
    (other,) = torch.autograd.grad((wanted * weights).sum(), prompts)
    assert (found - other).abs().max() < 1e-4 * other.abs().max()


def test_query_and_keys_are_those_of_the_last_block(twin: Any) -> None:
    kind, _, tower = twin
    seen = tower.encode(images(), drawn(1, 2, tower.width))
    assert tower.asks == (kind not in NO_CLASS_TOKEN)
    assert seen.query.shape == ((3, 2, 16) if tower.asks else (3, 0, 0))
    assert seen.keys.shape == ((3, 2, 2, 16) if tower.asks else (3, 0, 0, 0))
    if kind == "BiomedCLIP":
        block = tower._trunk.blocks[-1]
        x = tower.tokens(images())
        fresh = drawn(1, 2, tower.width).expand(3, -1, -1)
        x = tower._trunk.blocks[:-1](torch.cat([x, fresh], dim=1))
        q, k, _ = block.attn.qkv(block.norm1(x)).view(3, -1, 3, 2, 16).permute(2, 0, 3, 1, 4)
        assert (q[:, :, 0] - seen.query).abs().max() < 1e-5
        assert (k[:, :, tower.length :] - seen.keys).abs().max() < 1e-5


def test_patches_go_through_the_last_norm_and_projection(twin: Any) -> None:
    kind, model, tower = twin
    if kind in {"SigLIP", "PE"}:
        with pytest.raises(ModelError, match="its tower pools by attention"):
            assert tower.patches_shape
        return
    assert tower.patches_shape == (16, tiny.EMBED)
    states = tower.states(images())
    assert states.shape == (3, tower.length, 32)
    trunk = model.visual.trunk
    wanted = model.visual.head(trunk.fc_norm(trunk.norm(states)[:, trunk.num_prefix_tokens :]))
    assert (tower.patches(images()) - F.normalize(wanted, dim=-1)).abs().max() < 1e-5
    if kind == "average":
        alone = trunk.norm(states).mean(dim=1)
        assert (
            model.visual.head(trunk.fc_norm(alone)) - tower.encode(images()).raw
        ).abs().max() < 1e-5


def test_prompts_that_do_not_fit_are_refused(twin: Any) -> None:
    _, _, tower = twin
    for shape in ((4, 2, 32), (1, 2, 31), (2, 32)):
        with pytest.raises(ModelError, match=r"takes \[1 to 3, any number, 32\]"):
            tower.encode(images(), torch.zeros(shape))


@pytest.mark.parametrize("name", ["test_convnext", "test_efficientnet", "test_vit_relpos"])
def test_other_towers_give_features_and_say_what_they_take(name: str) -> None:
    model = _clip(name, "avg" if name == "test_vit_relpos" else "").eval()
    tower = tower_of(model, name)
    assert type(tower) is VisionTower
    assert not tower.promptable
    assert not tower.asks
    with pytest.raises(ModelError, match=r"takes no visual prompts .*; choose a policy of learned"):
        tower.encode(torch.zeros(1, 3, 160, 160))


def test_a_tower_of_timms_registry_takes_prompts() -> None:
    tower = tower_of(_clip(), "test_vit")
    assert type(tower) is TimmTower
    assert (tower.layers, tower.grid) == (6, (10, 10))
    assert tower.compact == (tower.length * tower.width < 3 * 160 * 160)
    assert not tower.plain
