"""FedMaPLe: MaPLe's coupled prompts in both towers (Khattak et al. 2023), averaged in every round.

    block 1          context vectors P_1 [m, text width] in front of the class name
    blocks 2 to d    P_i [m, text width] replaces P_{i-1}                    d: `depth`
    image tower      P_i W_i + b_i in block i: visual prompts are projections of the text prompts

Each block has a projection of its own, as in MaPLe's code (3,555,072 numbers at depth 9 with
ViT-B/16). The depth is bounded by the shallower tower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.settings import bounded
from fednode.core.types import Json, Tensors
from fednode.lazy import Tensor, torch
from fednode.learn import init
from fednode.learn.prompt_module import Batch, PromptModule


@dataclass(frozen=True, slots=True)
class FedMaPLeConfig(AveragingConfig):
    """FedMaPLe: MaPLe's coupled prompts in both towers (Khattak et al. 2023), averaged."""

    weights: Literal["samples", "equal"] = "equal"
    depth: int = 9
    """Number of blocks of each tower with prompts of their own; at most as many as there are."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        bounded("policy.depth", self.depth, 1)


class MaPLe(PromptModule):
    """Coupled prompts of both towers; needs the images' tokens or pixels."""

    config: FedMaPLeConfig
    uses_image_encoder = True

    def initial(self, seed: int) -> Tensors:
        """Return words or normal vectors, normal deeper prompts, and torch's layers."""
        text, vision, draw = self.clip.text, self.clip.vision, init.generator(seed)
        length, wide = self.settings.vectors, vision.width  # says so if there are no prompts
        depth = max(1, min(self.config.depth, text.layers, vision.layers))
        deeper = (depth - 1, length, text.width)
        return Tensors(
            {
                "context": init.context(self.clip, self.settings, draw),
                "deeper": init.normal(draw, deeper, self.settings.init_std),
                "projection.weight": init.uniform(draw, (depth, wide, text.width), text.width),
                "projection.bias": init.uniform(draw, (depth, wide), text.width),
            }
        )

    def text_features(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Tensor:
        """Return [classes, D] with the context vectors, and deeper prompts if there are any."""
        tokens = self.texts.tokens(classes, self.settings.vectors)
        deeper = params["deeper"] if len(params["deeper"]) else None
        return self.clip.text.encode(tokens, params["context"], deeper)

    def image_features(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return [B, D] with the projected prompts."""
        prompts = torch.cat([params["context"][None], params["deeper"]])
        bias = params["projection.bias"][:, None]
        visual = torch.baddbmm(bias, prompts, params["projection.weight"].transpose(1, 2))
        return self.clip.vision.encode(batch.images, visual).features


class FedMaPLe(Averaging):
    """See the file's header."""

    name = "fedmaple"
    config_type = FedMaPLeConfig
    prompts = MaPLe
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 2,
        "init_words": "a photo",
        "lr": 0.0035,
        "batch_size": 4,
        "epochs": 5,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "schedule": "constant",
    }
