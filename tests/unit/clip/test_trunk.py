"""The trunk is EfficientNet-Lite with a concept token; an image's tokens are always the same bits.

Method: timm's EfficientNet-Lite2 with random weights and random statistics of its batch
normalisation, folded into convolutions here and compared in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednode.clip import trunk
from fednode.clip.trunk import CHUNK, Convolution, Trunk
from tests.unit.clip import tiny

LITE2 = {
    "stem": 32,
    "base": [
        [1, 3, 1, 1, 16],
        [3, 3, 2, 6, 24],
        [3, 5, 2, 6, 48],
        [4, 3, 2, 6, 88],
        [4, 5, 1, 6, 120],
    ],
    "last": [[5, 5, 2, 6, 208], [1, 3, 1, 6, 352]],
    "head": 1280,
    "classes": 1000,
}
WIDTH = 8


@pytest.fixture(autouse=True)
def as_many_workers_as_before() -> Iterator[None]:
    before = trunk._wanted
    yield
    trunk.use_workers(before)


def images(count: int, side: int = 64) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def small() -> Any:
    return tiny.hybrid().visual.conv1


def folded(conv: nn.Conv2d, norm: Any) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a convolution with its batch normalisation."""
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()
    return conv.weight * factor[:, None, None, None], norm.bias - norm.running_mean * factor


def layers(block: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the convolutions of one of timm's blocks, in the order of their use."""
    names = [("conv_pw", "bn1"), ("conv_dw", "bn2"), ("conv_pwl", "bn3")]
    if not hasattr(block, "conv_pwl"):
        names = [("conv_dw", "bn1"), ("conv_pw", "bn2")]
    return [folded(getattr(block, conv), getattr(block, norm)) for conv, norm in names]


@torch.no_grad()
def test_it_is_efficientnet_lite() -> None:
    torch.manual_seed(0)
    theirs: Any = timm.create_model("tf_efficientnet_lite2", pretrained=False).double().eval()
    norms: list[Any] = [one for one in theirs.modules() if isinstance(one, nn.BatchNorm2d)]
    for norm in norms:
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 2.0)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
    ours = Trunk(LITE2, WIDTH).double()
    assert ours.stride == 32
    found = [folded(theirs.conv_stem, theirs.bn1)]
    found += [pair for stage in theirs.blocks for one in stage for pair in layers(one)]
    found.append(folded(theirs.conv_head, theirs.bn2))
    shared = sum(isinstance(one, Convolution) for one in ours.base.modules())
    for part, pairs in ((ours.base, found[:shared]), (ours.known, found[shared:])):
        convolutions = [one for one in part.modules() if isinstance(one, Convolution)]
        for one, (weight, bias) in zip(convolutions, pairs, strict=True):
            one.load_state_dict({"weight": weight, "bias": bias})
    ours.tuned.load_state_dict(ours.known.state_dict())
    ours.classifier.load_state_dict(theirs.classifier.state_dict())
    nn.init.normal_(ours.names)
    pixels = images(2, 96).double()
    seen = theirs.forward_features(pixels)
    torch.testing.assert_close(ours.known(ours.base(pixels)), seen, rtol=1e-9, atol=1e-9)
    grid = F.conv2d(seen, ours.project.weight, ours.project.bias).flatten(2)
    concept = F.normalize(grid.mean(dim=2), dim=1) + theirs(pixels).softmax(dim=1) @ ours.names
    wanted = torch.cat([grid, concept[:, :, None]], dim=2)[..., None]
    torch.testing.assert_close(ours(pixels), wanted, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_an_image_s_tokens_hang_on_neither_company_nor_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trunk, "CHUNK", CHUNK)
    one, pixels = small(), images(2 * CHUNK + 3)
    whole = one(pixels)
    assert whole.shape == (len(pixels), 32, 17, 1)
    for workers in (1, 2, 3):
        trunk.use_workers(workers)
        assert torch.equal(one(pixels), whole)
        assert torch.equal(one(pixels[5:6]), whole[5:6])
        assert torch.equal(one(pixels.flip(0)), whole.flip(0))
    assert len(one(pixels[:0])) == 0


def test_each_worker_computes_with_one_thread() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        found = trunk._workers.__wrapped__(3).map(lambda _: torch.get_num_threads(), range(9))
        assert set(found) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
