"""The shared prefix gives what open_clip's own transformer gives, forward and backward.

Method: random small towers, texts and lengths; the reference runs every text whole and padded
through the transformer itself.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from open_clip.transformer import Transformer
from torch import Tensor

from node.clip.prefix import Endings, last_states, shares


def reference(transformer: Any, prefix: Tensor, endings: Tensor, lengths: list[int]) -> Tensor:
    """Run each text whole; return the states at the ends."""
    longest = max(lengths)
    rows = []
    for part in torch.split(endings, lengths):
        padding = part.new_zeros(longest - len(part), part.shape[1])
        rows.append(torch.cat([prefix, part, padding]))
    size = len(prefix) + longest
    mask = torch.full((size, size), float("-inf"), dtype=prefix.dtype).triu(1)
    x = transformer(torch.stack(rows), attn_mask=mask)
    ends = torch.tensor(lengths) + len(prefix) - 1
    out: Tensor = x[torch.arange(len(lengths)), ends]
    return out


def tower(seed: int, layers: int, heads: int, scale: float | None) -> Transformer:
    torch.manual_seed(seed)
    made = Transformer(width=8 * heads, layers=layers, heads=heads, ls_init_value=scale)
    return made.double().eval().requires_grad_(False)


@given(
    seed=st.integers(0, 2**31),
    layers=st.integers(1, 4),
    heads=st.integers(1, 3),
    scale=st.sampled_from([None, 0.5]),
    prefix=st.integers(1, 9),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=9),
)
def test_states_and_gradients_equal_those_of_whole_texts(
    seed: int, layers: int, heads: int, scale: float | None, prefix: int, lengths: list[int]
) -> None:
    transformer = tower(seed, layers, heads, scale)
    width = 8 * heads
    begin = torch.randn(prefix, width, dtype=torch.float64)
    rest = torch.randn(sum(lengths), width, dtype=torch.float64)
    weights = torch.randn(len(lengths), width, dtype=torch.float64)
    layout = Endings.of(torch.tensor(lengths))
    found = []
    for run in ("shared", "whole"):
        leaf, ends = begin.clone().requires_grad_(), rest.clone().requires_grad_()
        if run == "shared":
            out = last_states(transformer, leaf, ends, layout)
        else:
            out = reference(transformer, leaf, ends, lengths)
        torch.autograd.backward((out * weights).sum())
        found.append((out.detach(), leaf.grad, ends.grad))
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=9))
def test_the_layout_leads_there_and_back(lengths: list[int]) -> None:
    layout = Endings.of(torch.tensor(lengths))
    rows = torch.arange(sum(lengths))
    assert layout.place.shape == (len(lengths), max(lengths))
    assert torch.equal(layout.place.flatten()[layout.flat], rows)
    assert layout.last.tolist() == [sum(lengths[: at + 1]) - 1 for at in range(len(lengths))]
    assert layout.offset.tolist() == [step for size in lengths for step in range(size)]


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_autocast_stays_within_its_precision(dtype: torch.dtype) -> None:
    transformer = tower(1, 3, 2, None).float()
    begin, rest = torch.randn(5, 16), torch.randn(9, 16)
    layout = Endings.of(torch.tensor([4, 2, 3]))
    exact = last_states(transformer, begin, rest, layout)
    with torch.autocast("cpu", dtype):
        rough = last_states(transformer, begin, rest, layout)
    assert (rough.float() - exact).abs().max() < 0.05 * exact.abs().max()


def test_other_blocks_are_left_to_the_transformer_itself() -> None:
    plain = Transformer(width=16, layers=2, heads=2)
    assert shares(plain)
    assert not shares(Transformer(width=16, layers=2, heads=2, qk_norm=True))
    assert not shares(torch.nn.Linear(2, 2))
    plain.resblocks[1].attn = torch.nn.MultiheadAttention(16, 2, add_bias_kv=True)
    assert not shares(plain)
