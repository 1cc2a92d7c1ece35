"""The residual attention blocks of a frozen CLIP tower, as functions of their weights.

Equal to open_clip's blocks, forward and backward. They are written out here because prompt tuning
needs parts of a block: keys and values of a prefix that many texts share and the query of the last
token alone (prefix_text.py), and the class token's query and keys (vision.py). Weights are never
trained, so autograd computes gradients of the activations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from open_clip.transformer import QuickGELU
from torch import Tensor, nn

QUICK: Final = 1.702
_ACTIVATIONS: Final = (nn.GELU, QuickGELU)


class Block:
    """One block's frozen weights in the dtype of its matrix products; norms stay in float32.

    Attributes:
        dtype: of matrix products
        ln_1: the norm before the attention
    """

    def __init__(self, block: Any, dtype: torch.dtype) -> None:
        attention, (up, self._gelu, down) = block.attn, block.mlp
        self.dtype, self.ln_1 = dtype, block.ln_1
        self._heads: int = attention.num_heads
        self._ln_2, self._ls_1, self._ls_2 = block.ln_2, block.ls_1, block.ls_2

        def cast(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
            return weight.detach().to(dtype), bias.detach().to(dtype)

        self._in = cast(attention.in_proj_weight, attention.in_proj_bias)
        self._out, self._up, self._down = (
            cast(layer.weight, layer.bias) for layer in (attention.out_proj, up, down)
        )

    def project(self, normed: Tensor, first: int = 0, last: int = 3) -> tuple[Tensor, ...]:
        """Return queries, keys and values (0, 1, 2), from `first` to before `last`.

        normed: [B, L, width], the output of ln_1; each result is [B, heads, L, head width].
        """
        width = normed.shape[-1]
        rows = slice(first * width, last * width)
        weight, bias = self._in
        return self._split(_linear(normed, weight[rows], bias[rows]), last - first)

    def project_parts(self, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return queries, keys and values of consecutive parts [B or 1, L_i, width].

        In the first block only the prompts carry a gradient, so parts that are projected apart from
        them cost nothing in the backward pass.
        """
        count = max(len(part) for part in parts)
        packed = [_linear(self.ln_1(part), *self._in) for part in parts]
        return self._split(torch.cat([part.expand(count, -1, -1) for part in packed], dim=1), 3)

    def _split(self, packed: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Return the parts of [B, L, parts * width], each [B, heads, L, head width]."""
        count, length, _ = packed.shape
        parted = packed.view(count, length, parts, self._heads, -1).permute(2, 0, 3, 1, 4)
        return torch.unbind(parted)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the block's output; x: its input, mixed: its attention, both [..., width]."""
        x = x + self._ls_1(_linear(mixed, *self._out))
        hidden = _linear(self._ln_2(x), *self._up)
        if isinstance(self._gelu, QuickGELU):
            # u * sigmoid(1.702 u), of which the backward pass keeps one tensor instead of two
            hidden = F.silu(QUICK * hidden) / QUICK
        else:
            hidden = self._gelu(hidden)
        out: Tensor = x + self._ls_2(_linear(hidden, *self._down))
        return out


def blocks_of(transformer: Any, dtype: torch.dtype) -> list[Block]:
    """Return a transformer's blocks; an empty list unless all are CLIP's plain blocks."""
    blocks = list(getattr(transformer, "resblocks", ()))
    return [Block(block, dtype) for block in blocks] if all(map(_plain, blocks)) else []


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


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b for a frozen weight [out, in], in the weight's dtype."""
    return F.linear(x.to(weight.dtype), weight, bias)
