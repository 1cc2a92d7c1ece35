"""The residual attention blocks of a frozen CLIP tower, computed without open_clip's modules.

Equal to open_clip's blocks, forward and backward, and faster, because weights are never trained: no
gradient of a weight, matrix products by oneDNN's kernels (which read the weights where they lie in
memory, so processes can share them), and a perceptron that goes through its rows in pieces that
stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from open_clip.transformer import QuickGELU
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

QUICK: Final = 1.702
"""QuickGELU(u) = u * sigmoid(1.702 u) = silu(1.702 u) / 1.702."""
PIECE: Final = 3 * 2**20
"""Hidden units of the perceptron at a time: 12 MB in float32, 1,024 rows at ViT-B's width."""
_ACTIVATIONS: Final = (nn.GELU, QuickGELU)
_ONEDNN: Final = hasattr(torch.ops.mkldnn, "_linear_pointwise")
_ONEDNN_BF16: Final = (
    _ONEDNN
    and hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    and torch.ops.mkldnn._is_mkldnn_bf16_supported()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block's frozen weights in the dtype of its matrix products; norms stay in float32.

    gelu: "none" or "tanh" for torch's GELU, or "quick". ls_1, ls_2: layer scales or identity.
    """

    heads: int
    gelu: str
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
        return self.split(_joined([part.expand(count, -1, -1) for part in packed], dim=1))

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the block's output; x: its input, mixed: its attention, both [..., width]."""
        x = x + self.ls_1(linear(mixed, self.out_weight, self.out_bias))
        out: Tensor = x + self.ls_2(self._perceptron(self.ln_2(x)))
        return out

    def _perceptron(self, x: Tensor) -> Tensor:
        rows = x.to(self.up_weight.dtype).flatten(0, -2)
        if torch.is_grad_enabled() and rows.requires_grad:
            out = _Perceptron.apply(rows, self)
        else:
            out = _joined([_down(self, _up(self, piece)) for piece in _pieces(self, rows)])
        whole: Tensor = out.view(x.shape)
        return whole


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
    kind = gelu.approximate if isinstance(gelu, nn.GELU) else "quick"
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
    return Block(heads=attention.num_heads, gelu=kind, **norms, **cast)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(head width) + mask) v as [B, L, width]."""
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        # torch's own kernel is up to eight times slower there, mostly in the backward pass.
        mixed = _Attention.apply(q, k, v, mask)
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    rows: Tensor = mixed.transpose(1, 2).flatten(2)
    return rows


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q = q * q.shape[-1] ** -0.5
        scores = q @ k.transpose(-1, -2)
        weights = (scores if mask is None else scores.add_(mask)).softmax(dim=-1)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, weights = ctx.saved_tensors
        slope = torch._softmax_backward_data(grad @ v.transpose(-1, -2), weights, -1, weights.dtype)
        dq = (slope @ k) * q.shape[-1] ** -0.5
        return dq, slope.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ grad, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b for a frozen weight [out, in], in the weight's dtype."""
    x = x.to(weight.dtype)
    if torch.is_grad_enabled() and x.requires_grad:
        out: Tensor = _Linear.apply(x, weight, bias)
        return out
    return _product(x, weight, bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    usable = _ONEDNN_BF16 if weight.dtype == torch.bfloat16 else _ONEDNN
    if usable and x.device.type == "cpu" and weight.dtype != torch.float64 and x.numel():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _product(grad, ctx.weight.t()), None, None


class _Perceptron(torch.autograd.Function):
    """Up, GELU, down; keeps only the hidden units before GELU for the backward pass."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, block: Block) -> Tensor:
        hidden = [_up(block, piece) for piece in _pieces(block, rows)]
        ctx.block = block
        ctx.save_for_backward(*hidden)
        return _joined([_down(block, state) for state in hidden])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        block: Block = ctx.block
        pieces = zip(_pieces(block, grad), ctx.saved_tensors, strict=True)
        return _joined([_back(block, piece, hidden) for piece, hidden in pieces]), None


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


def _pieces(block: Block, rows: Tensor) -> tuple[Tensor, ...]:
    """Split rows [n, width] into pieces of at most PIECE hidden units."""
    return torch.split(rows, max(1, PIECE // len(block.up_weight)))


def _up(block: Block, rows: Tensor) -> Tensor:
    return _product(rows, block.up_weight, block.up_bias)


def _down(block: Block, hidden: Tensor) -> Tensor:
    if block.gelu == "quick":
        hidden = F.silu(hidden * QUICK, inplace=True).mul_(1 / QUICK)
    else:
        hidden = F.gelu(hidden, approximate=block.gelu)
    return _product(hidden, block.down_weight, block.down_bias)


def _back(block: Block, grad: Tensor, hidden: Tensor) -> Tensor:
    grad = _product(grad, block.down_weight.t())
    if block.gelu == "quick":
        grad = torch.ops.aten.silu_backward(grad, hidden * QUICK)
    else:
        grad = torch.ops.aten.gelu_backward(grad, hidden, approximate=block.gelu)
    return _product(grad, block.up_weight.t())
