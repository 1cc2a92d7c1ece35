"""The residual attention blocks of a frozen CLIP tower, as functions of their weights.

Equal to open_clip's blocks, forward and backward. They are written out here because prompt tuning
needs parts of a block: keys and values of a prefix that many texts share and the query of the last
token alone (prefix_text.py), and the class token's query and keys (vision.py). Weights are never
trained, so autograd computes gradients of the activations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from open_clip.transformer import QuickGELU
from torch import Tensor, nn

QUICK: Final = 1.702
_ACTIVATIONS: Final = (nn.GELU, QuickGELU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block's frozen weights in the dtype of its matrix products; norms stay in float32.

    gelu: the activation module. ls_1, ls_2: layer scales or identity.
    """

    heads: int
    gelu: nn.Module
    ln_1: nn.LayerNorm
    ln_2: nn.LayerNorm
    ls_1: nn.Module
    ls_2: nn.Module
    in_weight: Tensor
    in_bias: Tensor
    out_weight: Tensor
    out_bias: Tensor
    up_weight: Tensor
    up_bias: Tensor
    down_weight: Tensor
    down_bias: Tensor

    def project(self, normed: Tensor, first: int = 0, last: int = 3) -> tuple[Tensor, ...]:
        """Return queries, keys and values (0, 1, 2), from `first` to before `last`.

        normed: [B, L, width], the output of ln_1; each result is [B, heads, L, head width].
        """
        width = self.out_weight.shape[0]
        rows = slice(first * width, last * width)
        packed = linear(normed, self.in_weight[rows], self.in_bias[rows])
        return self.split(packed, last - first)

    def split(self, packed: Tensor, parts: int = 3) -> tuple[Tensor, ...]:
        """Return the parts of [B, L, parts * width], each [B, heads, L, head width]."""
        count, length, _ = packed.shape
        parted = packed.view(count, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return torch.unbind(parted)

    def project_parts(self, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return queries, keys and values of consecutive parts [B or 1, L_i, width].

        In the first block only the prompts carry a gradient, so parts that are projected apart from
        them cost nothing in the backward pass.
        """
        count = max(len(part) for part in parts)
        packed = [linear(self.ln_1(part), self.in_weight, self.in_bias) for part in parts]
        return self.split(torch.cat([part.expand(count, -1, -1) for part in packed], dim=1))

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the block's output; x: its input, mixed: its attention, both [..., width]."""
        x = x + self.ls_1(linear(mixed, self.out_weight, self.out_bias))
        hidden = linear(self.ln_2(x), self.up_weight, self.up_bias)
        if isinstance(self.gelu, QuickGELU):
            # u * sigmoid(1.702 u), of which the backward pass keeps one tensor instead of two
            hidden = F.silu(QUICK * hidden) / QUICK
        else:
            hidden = self.gelu(hidden)
        out: Tensor = x + self.ls_2(linear(hidden, self.down_weight, self.down_bias))
        return out


def blocks_of(transformer: Any, dtype: torch.dtype) -> list[Block]:
    """Return a transformer's blocks; an empty list unless all are CLIP's plain blocks."""
    blocks = list(getattr(transformer, "resblocks", ()))
    if not all(_plain(block) for block in blocks):
        return []
    return [_block(block, dtype) for block in blocks]


def _plain(block: Any) -> bool:
    attention, mlp = getattr(block, "attn", None), getattr(block, "mlp", None)
    return (
        type(attention) is nn.MultiheadAttention
        and attention.in_proj_weight is not None
        and attention.in_proj_bias is not None
        and attention.bias_k is None
        and not attention.add_zero_attn
        and not hasattr(block, "ln_1_kv")
        and all(isinstance(getattr(block, name, None), nn.LayerNorm) for name in ("ln_1", "ln_2"))
        and all(hasattr(block, name) for name in ("ls_1", "ls_2"))
        and isinstance(mlp, nn.Sequential)
        and [type(layer) for layer in mlp] in ([nn.Linear, act, nn.Linear] for act in _ACTIVATIONS)
    )


def _block(block: Any, dtype: torch.dtype) -> Block:
    attention, (up, gelu, down) = block.attn, block.mlp
    weights = {
        "in_weight": attention.in_proj_weight,
        "in_bias": attention.in_proj_bias,
        "out_weight": attention.out_proj.weight,
        "out_bias": attention.out_proj.bias,
        "up_weight": up.weight,
        "up_bias": up.bias,
        "down_weight": down.weight,
        "down_bias": down.bias,
    }
    norms = {name: getattr(block, name) for name in ("ln_1", "ln_2", "ls_1", "ls_2")}
    cast = {name: weight.detach().to(dtype) for name, weight in weights.items()}
    return Block(heads=attention.num_heads, gelu=gelu, **norms, **cast)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(head width) + mask) v as [B, L, width]."""
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        # torch's own kernel is slower there, mostly in the backward pass.
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        mixed = (scores if mask is None else scores + mask).softmax(dim=-1) @ v
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    rows: Tensor = mixed.transpose(1, 2).flatten(2)
    return rows


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b for a frozen weight [out, in], in the weight's dtype."""
    return F.linear(x.to(weight.dtype), weight, bias)
