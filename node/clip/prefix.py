"""A causal text tower on texts that begin alike: the common beginning is computed once. Exact.

CLIP's text transformer is causal, so [SOS] and the context vectors never see the class name: their
states are the same for every class. Here all tokens that must be computed, the prefix once and each
class's own ending, lie in one packed matrix [P + T, width], so every linear layer reads its weights
once for all of them and no padding is ever multiplied. Only attention knows texts: an ending
attends to the prefix (one product for all classes) and to itself. In the last block nothing is
computed but keys, values, and the states that are read: those at the ends of the texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Endings:
    """Where the tokens of n endings lie in their packed rows [T].

    place: [n, S], the row of token s of ending c (0 behind its end). flat: [T], each row's place in
    the padded [n * S]. last: [n], the row of each ending's last token. offset: [T], its position
    after the prefix.
    """

    place: Tensor
    flat: Tensor
    last: Tensor
    offset: Tensor

    @classmethod
    def of(cls, lengths: Tensor) -> Endings:
        """Return the layout of endings of these lengths [n], each at least 1."""
        longest = int(lengths.max()) if len(lengths) else 1
        step = torch.arange(longest, device=lengths.device)
        valid = step < lengths[:, None]
        begin = lengths.cumsum(0) - lengths
        place = torch.where(valid, begin[:, None] + step, 0)
        flat = valid.flatten().nonzero().squeeze(1)
        return cls(place, flat, begin + lengths - 1, flat % longest)


def shares(transformer: Any) -> bool:
    """Tell whether a transformer is built of the plain blocks that this file computes."""
    blocks = getattr(transformer, "resblocks", ())
    return len(blocks) > 0 and all(_plain(block) for block in blocks)


def _plain(block: Any) -> bool:
    attention = getattr(block, "attn", None)
    return (
        type(attention) is nn.MultiheadAttention
        and attention.in_proj_weight is not None
        and attention.bias_k is None
        and not attention.add_zero_attn
        and not hasattr(block, "ln_1_kv")
        and all(hasattr(block, name) for name in ("ln_1", "ls_1", "ln_2", "ls_2", "mlp"))
    )


def last_states(transformer: Any, prefix: Tensor, endings: Tensor, layout: Endings) -> Tensor:
    """Return the states [n, width] at the ends of n texts after the last block.

    prefix: embedded tokens [P, width] that all texts begin with. endings: embedded tokens
    [T, width] of their own, packed as `layout` says. Positions are added by the caller.
    """
    blocks = list(transformer.resblocks)
    length = len(prefix)
    own = (layout.place + length).flatten()
    future = [_future(size, own.device) for size in (length, layout.place.shape[1])]
    x = torch.cat([prefix, endings])
    for block in blocks[:-1]:
        q, k, v = _project(block.attn, block.ln_1(x), len(x))
        mixed = torch.cat(
            [_within(q, k, v, future[0]), _across(q, k, v, length, own, layout, future[1])]
        )
        x = x + block.ls_1(block.attn.out_proj(mixed))
        x = x + block.ls_2(block.mlp(block.ln_2(x)))
    block = blocks[-1]
    q, k, v = _project(block.attn, block.ln_1(x), len(x))
    rows = layout.last + length
    x = x[rows] + block.ls_1(
        block.attn.out_proj(_at_ends(q.index_select(1, rows), k, v, length, own, layout))
    )
    end: Tensor = x + block.ls_2(block.mlp(block.ln_2(x)))
    return end


def _project(attention: Any, x: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries (scaled), keys and values, each [heads, rows, head width]."""
    heads = attention.num_heads
    width = attention.head_dim
    packed = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    q, k, v = packed.view(rows, 3, heads, width).permute(1, 2, 0, 3).unbind(0)
    return q * width**-0.5, k, v


def _future(size: int, device: torch.device) -> Tensor:
    """Return where a token [size, size] would see one that follows it."""
    return torch.ones(size, size, dtype=torch.bool, device=device).triu(1)


def _within(q: Tensor, k: Tensor, v: Tensor, future: Tensor) -> Tensor:
    """Return the prefix's attention to itself, [P, heads * head width]."""
    length = len(future)
    q, k, v = q[:, :length], k[:, :length], v[:, :length]
    scores = q @ k.transpose(1, 2)
    weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    return (weights.to(v.dtype) @ v).transpose(0, 1).flatten(1)


def _across(
    q: Tensor, k: Tensor, v: Tensor, length: int, own: Tensor, layout: Endings, future: Tensor
) -> Tensor:
    """Return the endings' attention to the prefix and to themselves, [T, heads * head width]."""
    heads, _, width = q.shape
    count, longest = layout.place.shape
    q, own_k, own_v = (
        part.index_select(1, own).view(heads, count, longest, width) for part in (q, k, v)
    )
    shared = q.reshape(heads, count * longest, width) @ k[:, :length].transpose(1, 2)
    shared = shared.view(heads, count, longest, length)
    scores = q @ own_k.transpose(2, 3)
    scores = torch.cat([shared, scores.masked_fill(future, float("-inf"))], dim=-1)
    weights = scores.softmax(dim=-1).to(v.dtype)
    first = weights[..., :length].reshape(heads, count * longest, length) @ v[:, :length]
    mixed = first.view(heads, count, longest, width) + weights[..., length:] @ own_v
    return mixed.flatten(1, 2).index_select(1, layout.flat).transpose(0, 1).flatten(1)


def _at_ends(q: Tensor, k: Tensor, v: Tensor, length: int, own: Tensor, layout: Endings) -> Tensor:
    """Return the attention of the last tokens alone, [n, heads * head width]. q: theirs."""
    heads, count, width = q.shape
    longest = layout.place.shape[1]
    own_k, own_v = (part.index_select(1, own).view(heads, count, longest, width) for part in (k, v))
    shared = q @ k[:, :length].transpose(1, 2)
    scores = (own_k @ q[..., None]).squeeze(-1)
    steps = torch.arange(longest, device=q.device)
    behind = steps > (layout.offset[layout.last])[:, None]
    scores = scores.masked_fill(behind, float("-inf"))
    weights = torch.cat([shared, scores], dim=-1).softmax(dim=-1).to(v.dtype)
    mixed = weights[..., :length] @ v[:, :length]
    mixed = mixed + (weights[..., None, length:] @ own_v).squeeze(2)
    return mixed.transpose(0, 1).flatten(1)
