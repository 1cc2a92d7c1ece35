"""Visual prompts give what open_clip's own vision transformer gives with them in its sequence.

Method: random small towers, images and prompts in float64; the reference puts the prompts behind
the class token, where Fed-DPT has them, and runs the tower's own blocks on the whole sequence. Half
of the towers are hybrid: a convolutional trunk stands in the place of the patch embedding.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from open_clip.transformer import QuickGELU, VisionTransformer
from torch import Tensor, nn

from fednode.clip.trunk import Trunk
from fednode.clip.vision import VisionTower

HEADS, WIDTH = 2, 8
TRUNK = {"stem": 4, "base": [[1, 3, 2, 1, 4]], "last": [[2, 3, 1, 2, 4]], "head": 8, "classes": 5}


def model(seed: int, layers: int, hybrid: bool = False, **more: Any) -> Any:
    torch.manual_seed(seed)
    visual = VisionTransformer(
        image_size=8,
        patch_size=4,
        width=WIDTH,
        layers=layers,
        heads=HEADS,
        mlp_ratio=2.0,
        output_dim=5,
        **more,
    )
    nn.init.normal_(visual.ln_post.weight)
    if hybrid:
        trunk = Trunk(TRUNK, WIDTH)
        nn.init.normal_(trunk.names)
        visual.conv1 = trunk
        visual.positional_embedding = nn.Parameter(torch.randn(2 + 4, WIDTH))
    return SimpleNamespace(visual=visual.double().eval().requires_grad_(False))


def reference(visual: Any, images: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, the class token's last query and the prompts' last keys."""
    count = prompts.shape[1]
    x = visual.conv1(images).flatten(2).transpose(1, 2)
    x = torch.cat([visual.class_embedding.expand(len(x), 1, -1), x], dim=1)
    x = x + visual.positional_embedding
    first = prompts[0].expand(len(x), -1, -1)
    x = visual.ln_pre(torch.cat([x[:, :1], first, x[:, 1:]], dim=1))
    for number, block in enumerate(visual.transformer.resblocks):
        if 0 < number < len(prompts):
            fresh = prompts[number].expand(len(x), -1, -1)
            x = torch.cat([x[:, :1], fresh, x[:, 1 + count :]], dim=1)
        normed = block.ln_1(x)
        packed = F.linear(normed, block.attn.in_proj_weight, block.attn.in_proj_bias)
        q, k, _ = packed.view(len(x), x.shape[1], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        x = block(x)
    x = torch.cat([x[:, :1], x[:, 1 + count :]], dim=1)
    pooled, _ = visual._pool(x)
    return F.normalize(pooled @ visual.proj, dim=-1), q[:, :, 0], k[:, :, 1 : 1 + count]


@given(
    seed=st.integers(0, 2**31),
    layers=st.integers(1, 4),
    depth=st.integers(1, 4),
    count=st.integers(0, 3),
    images=st.integers(1, 3),
    more=st.sampled_from(
        [
            {},
            {"pool_type": "avg"},
            {"final_ln_after_pool": True},
            {"no_ln_pre": True},
            {"ls_init_value": 0.3},
            {"act_layer": QuickGELU},
        ]
    ),
    hybrid=st.booleans(),
    from_tokens=st.booleans(),
)
def test_features_looks_and_gradients_equal_those_of_the_whole_sequence(
    seed: int,
    layers: int,
    depth: int,
    count: int,
    images: int,
    more: dict[str, Any],
    hybrid: bool,
    from_tokens: bool,
) -> None:
    made = model(seed, layers, hybrid, **more)
    tower = VisionTower(made, "tiny", torch.float64)
    pixels = torch.randn(images, 3, 8, 8, dtype=torch.float64)
    start = torch.randn(min(depth, layers), count, WIDTH, dtype=torch.float64)
    aim = torch.randn(images, 5, dtype=torch.float64)
    found = []
    for run in ("ours", "whole"):
        leaf = start.clone().requires_grad_()
        if run == "ours":
            given = tower.tokens(pixels) if from_tokens else pixels
            seen = tower.encode(given, leaf)
            parts = (seen.features, seen.query, seen.keys.expand(images, -1, -1, -1))
        else:
            parts = reference(made.visual, pixels, leaf)
        looks = torch.einsum("bhd,bhnd->bn", parts[1], parts[2]).softmax(dim=1)
        aimed = (parts[0] * aim).sum() + looks.square().sum() + leaf.sum()
        torch.autograd.backward(aimed)
        found.append((*(one.detach() for one in parts), leaf.grad))
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


@given(seed=st.integers(0, 2**31), layers=st.integers(1, 3), hybrid=st.booleans())
def test_without_prompts_it_is_the_tower_itself(seed: int, layers: int, hybrid: bool) -> None:
    made = model(seed, layers, hybrid)
    pixels = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    seen = VisionTower(made, "tiny", torch.float64).encode(pixels)
    torch.testing.assert_close(seen.features, F.normalize(made.visual(pixels), dim=-1))
    assert seen.keys.shape[2] == 0
