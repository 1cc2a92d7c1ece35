"""On a CUDA device the towers give what they give on a CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer

from fednode.clip.text import TextTower
from fednode.clip.vision import VisionTower
from tests.unit.clip import tiny

NAMES = ("cat", "golden retriever", "Boeing 747-400")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=["float32", "bf16"]
)
def test_features_and_gradients_are_those_of_the_cpu(dtype: torch.dtype, bound: float) -> None:
    model = tiny.clip()
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randn(3, 3, 32, 32, generator=draw)
    context, deep = torch.randn(2, 32, generator=draw), torch.randn(1, 2, 32, generator=draw)
    prompts = torch.randn(2, 3, 32, generator=draw)
    found = []
    for device, kind in (("cpu", torch.float32), ("cuda", dtype)):
        placed = copy.deepcopy(model).to(device)
        text = TextTower(placed, SimpleTokenizer(context_length=24), "tiny", kind)
        leaves = [one.detach().to(device).requires_grad_() for one in (context, deep, prompts)]
        texts = text.encode(text.tokens(NAMES, 2), leaves[0], leaves[1])
        images = VisionTower(placed, "tiny", kind).encode(pixels.to(device), leaves[2]).features
        torch.autograd.backward((images @ texts.T).log_softmax(dim=1)[:, 0].sum())
        grads = [one.grad.cpu() for one in leaves if one.grad is not None]
        found.append([texts.detach().cpu(), images.detach().cpu(), *grads])
    assert len(found[0]) == 5
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).abs().max() < bound * ours.abs().max()
