"""A frozen convolutional trunk in place of a vision transformer's patch embedding.

The trunk turns an image into the tokens of a hybrid vision transformer (Dosovitskiy et al. 2021,
section 3.1): one token for each cell of its last grid, and the concept token, which holds what the
trunk's own classifier knows about the whole image. Its layers are those of EfficientNet-Lite (Tan
and Le 2019; linear bottlenecks, ReLU6, no squeeze-and-excitation), with batch normalisation folded
into the convolutions.

The trunk has three parts. `base` is shared. `tuned` continues it and gives the grid's tokens.
`known` continues it too, with the weights that the classifier was trained with, and ends in the
classifier. The concept token of an image is

    normalize(mean of the grid's tokens) + sum over names i of p_i e_i,

where p is the classifier's softmax and e_i is row i of `names`.

On a CPU the images go through the trunk in chunks of CHUNK, and one thread computes each chunk. So
an image's tokens are equal bit for bit, whatever images came with it and however many threads run.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK: Final = 8
"""Images that one thread computes together on a CPU; a smaller chunk is filled up."""


class Convolution(nn.Conv2d):
    """A convolution with TensorFlow's "same" padding, followed by ReLU6 if `bounded`."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, groups: int, bounded: bool
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups)
        self._bounded = bounded

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, outputs, ceil(H / stride), ceil(W / stride)] of x [B, inputs, H, W]."""
        size, (stride, _), (kernel, _) = x.shape[-1], self.stride, self.kernel_size
        needed = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        if needed % 2:  # one more pixel behind than before
            x = F.pad(x, (0, 1, 0, 1))
        out = F.conv2d(x, self.weight, self.bias, stride, needed // 2, groups=self.groups)
        return F.relu6(out, inplace=True) if self._bounded else out


class Bottleneck(nn.Module):
    """Expand, convolve each channel on its own, contract; add the input if the shapes are equal."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers = [Convolution(inputs, hidden, 1, 1, 1, True)] if expand > 1 else []
        layers.append(Convolution(hidden, hidden, kernel, stride, hidden, True))
        layers.append(Convolution(hidden, outputs, 1, 1, 1, False))
        self.layers = nn.Sequential(*layers)
        self._skips = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, outputs, H', W'] of x [B, inputs, H, W]."""
        out: Tensor = self.layers(x)
        return out + x if self._skips else out


def bottlenecks(inputs: int, stages: Sequence[Sequence[int]]) -> list[nn.Module]:
    """Return the bottlenecks of stages in sequence; only the first of a stage has its stride."""
    made: list[nn.Module] = []
    for repeat, kernel, stride, expand, width in stages:
        for number in range(repeat):
            made.append(Bottleneck(inputs, width, kernel, 1 if number else stride, expand))
            inputs = width
    return made


class Trunk(nn.Module):
    """See the file's header; replaces `conv1` of an open_clip VisionTransformer.

    stride: pixels from one cell of the last grid to the next.
    """

    extra_tokens: Final = 1

    def __init__(self, config: Mapping[str, Any], width: int) -> None:
        """Build a trunk with random weights whose tokens are `width` wide.

        config: "trunk_cfg" of the model's config.json: channels of the `stem` and of the `head`;
        stages [repeat, kernel, stride, expand, width] of the `base` and behind it (`last`); number
        of `classes` that the classifier knows.
        """
        super().__init__()
        stem, base, last, head = (config[name] for name in ("stem", "base", "last", "head"))
        self.stride: int = 2 * math.prod(stage[2] for stage in (*base, *last))
        self.base = nn.Sequential(Convolution(3, stem, 3, 2, 1, True), *bottlenecks(stem, base))
        self.tuned, self.known = (
            nn.Sequential(
                *bottlenecks(base[-1][-1], last), Convolution(last[-1][-1], head, 1, 1, 1, True)
            )
            for _ in range(2)
        )
        self.project = Convolution(head, width, 1, 1, 1, False)
        self.classifier = nn.Linear(head, config["classes"])
        self.names = nn.Parameter(torch.zeros(config["classes"], width))

    def forward(self, images: Tensor) -> Tensor:
        """Return tokens [B, width, cells + 1, 1] of preprocessed images [B, 3, H, W].

        The grid's tokens come first, row by row; the concept token is the last.
        """
        if images.device.type != "cpu":
            return self._tokens(images)
        parts = torch.split(images, CHUNK)
        return torch.cat(list(_workers(_wanted).map(self._chunk, parts)))

    @torch.no_grad()
    def _chunk(self, images: Tensor) -> Tensor:
        """Return the tokens of at most CHUNK images; compute them as a whole chunk."""
        whole = F.pad(images, (0, 0) * 3 + (0, CHUNK - len(images)))
        return self._tokens(whole)[: len(images)]

    def _tokens(self, images: Tensor) -> Tensor:
        x = self.base(images.contiguous(memory_format=torch.channels_last))
        grid = self.project(self.tuned(x)).flatten(2)
        sure = self.classifier(self.known(x).mean((2, 3))).softmax(dim=-1)
        concept = F.normalize(grid.mean(dim=2), dim=-1) + sure @ self.names
        tokens: Tensor = torch.cat([grid, concept[:, :, None]], dim=2)[..., None]
        return tokens


_wanted = os.cpu_count() or 1


def use_workers(count: int) -> None:
    """Set the number of chunks that trunks compute at once on a CPU."""
    global _wanted
    _wanted = count


@cache
def _workers(count: int) -> ThreadPoolExecutor:
    """Return the threads that compute chunks, each with a single thread of torch."""
    pool = ThreadPoolExecutor(count, "trunk", initializer=_use_one_thread)
    # set_num_threads applies to the calling thread, and to threads that begin later.
    before, all_begun = torch.get_num_threads(), threading.Barrier(count)
    list(pool.map(lambda _: all_begun.wait(), range(count)))
    torch.set_num_threads(before)
    return pool


def _use_one_thread() -> None:
    """Let torch compute in this thread alone what this thread asks for."""
    torch.get_num_threads()  # a thread takes the number of all threads when torch first needs it
    torch.set_num_threads(1)
