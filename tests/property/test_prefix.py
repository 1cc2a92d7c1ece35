"""The shared prefix gives what open_clip's own transformer gives, forward and backward.

Method: random small towers, texts, lengths and prompts in float64; the reference runs every text
whole and padded through the transformer's own blocks.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from open_clip.transformer import QuickGELU, Transformer
from torch import Tensor, nn

from fednode.clip import prefix_text as module
from fednode.clip.blocks import blocks_of
from fednode.clip.prefix_text import PackedSuffixes
from fednode.clip.prefix_text import encode_with_shared_prefix as encode

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=9)


def reference(
    transformer: Any, prefix: Tensor, endings: Tensor, lengths: list[int], deep: Tensor
) -> Tensor:
    """Run each text whole; return the states at the ends."""
    longest, context = max(lengths), deep.shape[1]
    rows = []
    for part in torch.split(endings, lengths):
        padding = part.new_zeros(longest - len(part), part.shape[1])
        rows.append(torch.cat([prefix, part, padding]))
    size = len(prefix) + longest
    mask = torch.full((size, size), float("-inf"), dtype=prefix.dtype).triu(1)
    x = torch.stack(rows)
    for number, block in enumerate(transformer.resblocks):
        if 0 < number <= len(deep):
            fresh = deep[number - 1].expand(len(x), -1, -1)
            x = torch.cat([x[:, :1], fresh, x[:, 1 + context :]], dim=1)
        x = block(x, attn_mask=mask)
    ends = torch.tensor(lengths) + len(prefix) - 1
    return x[torch.arange(len(lengths)), ends]


def tower(
    seed: int, layers: int, heads: int, scale: float | None = None, act: Any = nn.GELU
) -> Any:
    torch.manual_seed(seed)
    made = Transformer(
        width=8 * heads, layers=layers, heads=heads, ls_init_value=scale, act_layer=act
    )
    return made.double().eval().requires_grad_(False)


@given(
    seed=st.integers(0, 2**31),
    layers=st.integers(1, 4),
    heads=st.integers(1, 3),
    scale=st.sampled_from([None, 0.5]),
    act=st.sampled_from([nn.GELU, QuickGELU, lambda: nn.GELU(approximate="tanh")]),
    context=st.integers(0, 5),
    words=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    depth=st.integers(0, 3),
    lengths=LENGTHS,
    group=st.sampled_from([4, 11, 80]),
)
def test_states_and_gradients_equal_those_of_whole_texts(
    seed: int,
    layers: int,
    heads: int,
    scale: float | None,
    act: Any,
    context: int,
    words: list[int],
    depth: int,
    lengths: list[int],
    group: int,
) -> None:
    transformer = tower(seed, layers, heads, scale, act)
    width, several = 8 * heads, len(words)
    begin = torch.randn(several, 1 + context + max(words), width, dtype=torch.float64)
    sizes = [1 + context + count for count in words]
    rest = torch.randn(sum(lengths), width, dtype=torch.float64)
    deep = torch.randn(min(depth, layers - 1), several, context, width, dtype=torch.float64)
    weights = torch.randn(several, len(lengths), width, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP", group)
        patch.setattr(module, "SINGLE", group)
        layout = PackedSuffixes.of(lengths)
    blocks = blocks_of(transformer, torch.float64)
    found = []
    for run in ("shared", "whole"):
        leaf, ends, below = (one.clone().requires_grad_() for one in (begin, rest, deep))
        if run == "shared":
            out = encode(blocks, leaf, ends[layout.source][None], layout, below, sizes)
        else:
            texts = zip(leaf, sizes, below.unbind(1), strict=True)
            out = torch.stack(
                [reference(transformer, a[:size], ends, lengths, b) for a, size, b in texts]
            )
        torch.autograd.backward((out * weights).sum())
        found.append((out.detach(), leaf.grad, ends.grad, below.grad if len(below) else out))
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@given(lengths=LENGTHS, group=st.integers(1, 30))
def test_every_token_has_one_row_and_sees_its_own_text(lengths: list[int], group: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP", group)
        patch.setattr(module, "SINGLE", group)
        layout = PackedSuffixes.of(lengths)
    groups, rows = layout.sees.shape[:2]
    begins = [sum(lengths[:at]) for at in range(len(lengths))]
    ends = (layout.ends + rows * torch.arange(groups)[:, None]).flatten()[layout.order].tolist()
    for begin, length, end in zip(begins, lengths, ends, strict=True):
        own = range(end - length + 1, end + 1)
        assert layout.source[list(own)].tolist() == list(range(begin, begin + length))
        assert layout.offset[list(own)].tolist() == list(range(length))
        for step, row in enumerate(own):
            seen = layout.sees[row // rows, row % rows].nonzero().flatten() + row // rows * rows
            assert seen.tolist() == list(own)[: step + 1]


def test_groups_are_nearly_equal() -> None:
    lengths = [1 + at % 7 for at in range(400)]
    groups, rows = PackedSuffixes.of(lengths).sees.shape[:2]
    assert groups * rows <= 1.05 * sum(lengths)
    assert PackedSuffixes.of([4] * (module.SINGLE // 4)).sees.shape[0] == 1


def test_bfloat16_stays_within_its_precision() -> None:
    transformer = tower(1, 3, 2).float()
    begin, rest = torch.randn(1, 5, 16), torch.randn(1, 9, 16)
    layout = PackedSuffixes.of([4, 2, 3])
    ordered = rest[:, layout.source]
    exact = encode(blocks_of(transformer, torch.float32), begin, ordered, layout)
    rough = encode(blocks_of(transformer, torch.bfloat16), begin, ordered, layout)
    assert rough.dtype == torch.float32
    assert 0 < (rough - exact).abs().max() < 0.05 * exact.abs().max()
