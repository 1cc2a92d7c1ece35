"""Which blocks are taken over, and bfloat16 attention; property/test_prefix.py has the rest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.transformer import ResidualAttentionBlock, Transformer
from torch import Tensor, nn

from fednode.clip import blocks
from fednode.clip.blocks import blocks_of

WIDTH = 16


@pytest.mark.parametrize("masked", [False, True])
def test_bfloat16_attention_is_near_that_of_torch(masked: bool) -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 3, 6, 8, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.zeros(2, 1, 6, 6)
    if masked:
        mask[1, 0, :, 4:] = -torch.inf
    exact = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
    rows = blocks.attend(q, k, v, mask.bfloat16())
    ours: Tensor = rows.view(2, 6, 3, 8).transpose(1, 2)
    assert ours.dtype == torch.bfloat16
    assert (ours.float() - exact).abs().max() < 0.02 * exact.abs().max()


def test_weights_are_not_copied_in_their_own_precision() -> None:
    transformer = Transformer(width=WIDTH, layers=1, heads=2).requires_grad_(False)
    theirs: Any = transformer.resblocks[0]
    (ours,) = blocks_of(transformer, torch.float32)
    assert ours._up[0].data_ptr() == theirs.mlp.c_fc.weight.data_ptr()
    assert ours._in[0].data_ptr() == theirs.attn.in_proj_weight.data_ptr()


def test_other_blocks_are_left_to_the_transformer_itself() -> None:
    plain = Transformer(width=16, layers=2, heads=2)
    assert len(blocks_of(plain, torch.float32)) == 2
    assert not blocks_of(Transformer(width=16, layers=2, heads=2, qk_norm=True), torch.float32)
    assert not blocks_of(Transformer(width=16, layers=2, heads=2, act_layer=nn.ReLU), torch.float32)
    assert not blocks_of(nn.Linear(2, 2), torch.float32)
    crossed = Transformer(width=16, layers=1, heads=2)
    crossed.resblocks[0] = ResidualAttentionBlock(16, 2, is_cross_attention=True)
    assert not blocks_of(crossed, torch.float32)
    plain.resblocks[1].attn = nn.MultiheadAttention(16, 2, add_bias_kv=True)
    assert not blocks_of(plain, torch.float32)
