"""A frozen convolutional trunk that stands where a vision transformer has its patch embedding.

The trunk turns an image into the tokens of a hybrid vision transformer (Dosovitskiy et al. 2021,
section 3.1): one token for each cell of its last grid, and one more, the concept token, which says
what a classifier of the trunk's own knows about the whole image. Its layers are those of
EfficientNet-Lite (Tan and Le 2019; linear bottlenecks, ReLU6, no squeeze-and-excitation), with
batch normalisation folded into the convolutions.

The trunk has three parts. `base` is shared. `tuned` continues it and gives the grid's tokens.
`known` continues it too, with the weights that the classifier was trained with, and ends in the
classifier. The concept token of an image is

    normalize(mean of the grid's tokens) + sum over names i of p_i e_i,

where p is the classifier's softmax and e_i is row i of `names`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK: Final = 16
"""Images at a time on a CPU: their activations then stay in the processor's cache."""
_FUSED: Final = hasattr(torch.ops.mkldnn, "_convolution_pointwise")


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of `repeat` inverted bottlenecks, the first of which has the stride."""

    repeat: int
    kernel: int
    stride: int
    expand: int
    width: int


@dataclass(frozen=True, slots=True)
class TrunkSettings:
    """What a trunk looks like.

    stem: channels behind the first convolution. base, last: stages before and behind the place
    where `tuned` and `known` part. head: channels of the last 1x1 convolution. classes: names that
    the classifier knows.
    """

    stem: int
    base: tuple[Stage, ...]
    last: tuple[Stage, ...]
    head: int
    classes: int

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> TrunkSettings:
        """Return the settings that a model's config.json holds under "trunk_cfg"."""
        base, last = (tuple(Stage(*one) for one in found[name]) for name in ("base", "last"))
        return cls(found["stem"], base, last, found["head"], found["classes"])


class Convolution(nn.Module):
    """A convolution with TensorFlow's "same" padding, then ReLU6 where `bounded`."""

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
    """Expand, convolve each channel by itself, contract; add the input where shapes allow."""

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


def stages(inputs: int, wanted: Sequence[Stage]) -> list[nn.Module]:
    """Return the bottlenecks of some stages, one behind the other."""
    made: list[nn.Module] = []
    for stage in wanted:
        for number in range(stage.repeat):
            stride = stage.stride if number == 0 else 1
            made.append(Bottleneck(inputs, stage.width, stage.kernel, stride, stage.expand))
            inputs = stage.width
    return made


class Trunk(nn.Module):
    """See the file's header; stands in for `conv1` of an open_clip VisionTransformer."""

    extra_tokens: Final = 1

    def __init__(self, settings: TrunkSettings, width: int) -> None:
        """Build a trunk whose tokens are `width` wide, with weights that know nothing."""
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
        self.project = Convolution(settings.head, width, 1, 1, 1, False)
        self.classifier = nn.Linear(settings.head, settings.classes)
        self.names = nn.Parameter(torch.zeros(settings.classes, width))

    def forward(self, images: Tensor) -> Tensor:
        """Return tokens [B, width, cells + 1, 1] of preprocessed images [B, 3, H, W].

        The concept token stands behind the grid's, which go row by row.
        """
        if images.device.type == "cpu" and len(images) > CHUNK:
            return torch.cat([self.forward(part) for part in torch.split(images, CHUNK)])
        x = self.base(images.contiguous(memory_format=torch.channels_last))
        grid = self.project(self.tuned(x)).flatten(2)
        sure = self.classifier(self.known(x).mean((2, 3))).softmax(dim=-1)
        concept = F.normalize(grid.mean(dim=2), dim=-1) + sure @ self.names
        tokens: Tensor = torch.cat([grid, concept[:, :, None]], dim=2)[..., None]
        return tokens
