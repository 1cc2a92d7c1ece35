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
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK: Final = 8
"""Images that one thread computes together on a CPU; a smaller chunk is filled up."""
FINE: Final = 4
"""Stride up to which the images of a chunk go through the first layers one by one.

There the activations of a whole chunk are so large that the allocator gets new memory pages from
the system for each layer, which costs a third of the time (measured: 46 ms per image, 31 ms one by
one).
"""
_FUSED: Final = hasattr(torch.ops.mkldnn, "_convolution_pointwise")


@dataclass(frozen=True, slots=True)
class Stage:
    """A sequence of `repeat` inverted bottlenecks; only the first has the stride."""

    repeat: int
    kernel: int
    stride: int
    expand: int
    width: int


@dataclass(frozen=True, slots=True)
class TrunkSettings:
    """The shape of a trunk.

    Attributes:
        stem: channels after the first convolution
        base, last: stages before and after the place where `tuned` and `known` part
        head: channels of the last 1x1 convolution
        classes: number of names that the classifier knows
    """

    stem: int
    base: tuple[Stage, ...]
    last: tuple[Stage, ...]
    head: int
    classes: int

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> TrunkSettings:
        """Return the settings that a model's config.json holds under "trunk_cfg".

        Raise KeyError or TypeError if a setting is missing or has another form.
        """
        base, last = (tuple(Stage(*stage) for stage in tree[name]) for name in ("base", "last"))
        return cls(tree["stem"], base, last, tree["head"], tree["classes"])

    @property
    def stride(self) -> int:
        """Pixels from one cell of the last grid to the next."""
        return 2 * math.prod(stage.stride for stage in (*self.base, *self.last))


class Convolution(nn.Module):
    """A convolution with TensorFlow's "same" padding, followed by ReLU6 if `bounded`."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, groups: int, bounded: bool
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs // groups, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self._kernel, self._stride, self._groups, self._bounded = kernel, stride, groups, bounded
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, outputs, ceil(H / stride), ceil(W / stride)] of x [B, inputs, H, W]."""
        before, behind = self._padding(x.shape[-1])
        if before == behind:
            padding = (before, before)
        else:
            x, padding = F.pad(x, (before, behind, before, behind)), (0, 0)
        stride = (self._stride, self._stride)
        if _fusable(x):
            kind, bounds = ("hardtanh", [0.0, 6.0]) if self._bounded else ("none", [])
            out: Tensor = torch.ops.mkldnn._convolution_pointwise(
                x, self.weight, self.bias, padding, stride, (1, 1), self._groups, kind, bounds, ""
            )
            return out
        out = F.conv2d(x, self.weight, self.bias, stride, padding, groups=self._groups)
        return out.clamp(0, 6) if self._bounded else out

    def _padding(self, size: int) -> tuple[int, int]:
        needed = (-(-size // self._stride) - 1) * self._stride + self._kernel - size
        needed = max(needed, 0)
        return needed // 2, needed - needed // 2


def _fusable(x: Tensor) -> bool:
    return (
        _FUSED
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_grad_enabled()
    )


class Bottleneck(nn.Module):
    """Expand, convolve each channel on its own, contract; add the input if the shapes are equal."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers = [Convolution(inputs, hidden, 1, 1, 1, True)] if expand > 1 else []
        layers.append(Convolution(hidden, hidden, kernel, stride, hidden, True))
        layers.append(Convolution(hidden, outputs, 1, 1, 1, False))
        self.stride = stride
        self.layers = nn.Sequential(*layers)
        self._skips = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, outputs, H', W'] of x [B, inputs, H, W]."""
        out: Tensor = self.layers(x)
        return out + x if self._skips else out


def stages(inputs: int, wanted: Sequence[Stage]) -> list[nn.Module]:
    """Return the bottlenecks of some stages in sequence."""
    made: list[nn.Module] = []
    for stage in wanted:
        for number in range(stage.repeat):
            stride = stage.stride if number == 0 else 1
            made.append(Bottleneck(inputs, stage.width, stage.kernel, stride, stage.expand))
            inputs = stage.width
    return made


class Trunk(nn.Module):
    """See the file's header; replaces `conv1` of an open_clip VisionTransformer."""

    extra_tokens: Final = 1

    def __init__(self, settings: TrunkSettings, width: int) -> None:
        """Build a trunk with random weights whose tokens are `width` wide."""
        super().__init__()
        parting = settings.base[-1].width
        self.base = nn.Sequential(
            Convolution(3, settings.stem, 3, 2, 1, True), *stages(settings.stem, settings.base)
        )
        self.tuned, self.known = (
            nn.Sequential(
                *stages(parting, settings.last),
                Convolution(settings.last[-1].width, settings.head, 1, 1, 1, True),
            )
            for _ in range(2)
        )
        strides = [2, *(block.stride for block in self.base if isinstance(block, Bottleneck))]
        reached = [math.prod(strides[: at + 1]) for at in range(len(strides))]
        self._fine = next((at + 1 for at, stride in enumerate(reached) if stride >= FINE), 0)
        self.project = Convolution(settings.head, width, 1, 1, 1, False)
        self.classifier = nn.Linear(settings.head, settings.classes)
        self.names = nn.Parameter(torch.zeros(settings.classes, width))

    def forward(self, images: Tensor) -> Tensor:
        """Return tokens [B, width, cells + 1, 1] of preprocessed images [B, 3, H, W].

        The grid's tokens come first, row by row; the concept token is the last.
        """
        if not _fusable(images):
            return self._tokens(images)
        parts = torch.split(images, CHUNK)
        return torch.cat(list(_workers().map(self._chunk, parts)))

    @torch.no_grad()
    def _chunk(self, images: Tensor) -> Tensor:
        """Return the tokens of at most CHUNK images; compute them as a whole chunk."""
        missing = CHUNK - len(images)
        return self._tokens(F.pad(images, (0, 0) * 3 + (0, missing)))[: len(images)]

    def _tokens(self, images: Tensor) -> Tensor:
        x = images.contiguous(memory_format=torch.channels_last)
        if _fusable(x):
            fine = self.base[: self._fine]
            x = torch.cat([fine(image) for image in torch.split(x, 1)])
            x = self.base[self._fine :](x)
        else:
            x = self.base(x)
        grid = self.project(self.tuned(x)).flatten(2)
        sure = self.classifier(self.known(x).mean((2, 3))).softmax(dim=-1)
        concept = F.normalize(grid.mean(dim=2), dim=-1) + sure @ self.names
        tokens: Tensor = torch.cat([grid, concept[:, :, None]], dim=2)[..., None]
        return tokens


_guard = threading.Lock()
_wanted = os.cpu_count() or 1
_made: tuple[int, ThreadPoolExecutor] | None = None


def use_workers(count: int) -> None:
    """Set the number of chunks that trunks compute at once on a CPU."""
    global _wanted
    _wanted = count


def _workers() -> ThreadPoolExecutor:
    """Return the threads that compute chunks, each with a single thread of torch."""
    global _made
    with _guard:
        if _made is None or _made[0] != _wanted:
            pool = ThreadPoolExecutor(
                _wanted, "trunk", initializer=torch.set_num_threads, initargs=(1,)
            )
            # set_num_threads applies to the calling thread, and to threads that begin later.
            before, all_begun = torch.get_num_threads(), threading.Barrier(_wanted)
            list(pool.map(lambda _: all_begun.wait(), range(_wanted)))
            torch.set_num_threads(before)
            _made = _wanted, pool
        return _made[1]
