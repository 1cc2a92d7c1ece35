"""Image towers of the library timm with visual prompts: [prefix, patches, prompts].

For timm's plain vision transformers (SigLIP, BiomedCLIP, ViTamin, MobileCLIP-B). Tokens go through
timm's own blocks. Prompts follow the patches and have no position. They are dropped before the last
norm, so pooling reads the tokens that it was trained with. Exact, forward and backward. A tower
with rotary positions (EVA, Perception Encoder) takes no prompts.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.vision import VisionOutput, VisionTower
from fednode.errors import ModelError


class TimmTower(VisionTower):
    """Encode images with shallow or deep prompts through timm's own blocks."""

    def __init__(self, model: Any, label: str, dtype: torch.dtype = torch.float32) -> None:
        """Take a model whose image tower `takes_prompts` accepts."""
        super().__init__(model, label, dtype)
        self._trunk: Any = self._tower.trunk

    @property
    def promptable(self) -> bool:
        """Tell whether this tower takes prompts."""
        return True

    @property
    def has_class_token(self) -> bool:
        """False: timm's blocks do not give the class token's query."""
        return False

    @property
    def layers(self) -> int:
        """Number of blocks; deep prompts have at most as many parts."""
        return len(self._trunk.blocks)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = self._trunk.patch_embed.grid_size
        return int(rows), int(columns)

    @property
    def width(self) -> int:
        """Width of a visual prompt vector."""
        return int(self._trunk.embed_dim)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of an image: class token and registers, if any, and patches."""
        rows, columns = self.grid
        return self._prefix + rows * columns

    def _encode(self, images: Tensor, prompts: Tensor | None) -> VisionOutput:
        """Return the tower's outputs; `query` and `keys` are empty."""
        if prompts is None:
            prompts = self._nothing()
        self._check(prompts)
        with self._precision(images):
            x = images if images.dim() == 3 else self.tokens(images)
            x = self._through(x, prompts)
            raw = self._tower.head(self._trunk.forward_head(self._trunk.norm(x)))
        raw = raw.float()
        nothing = raw.new_zeros(len(raw), 0, 0)
        return VisionOutput(F.normalize(raw, dim=-1), raw, nothing, nothing[..., None])

    @torch.no_grad()
    def tokens(self, images: Tensor) -> Tensor:
        """Return prefix and patches [B, length, width] before the first block."""
        trunk = self._trunk
        with self._precision(images):
            x = trunk._pos_embed(trunk.patch_embed(images.to(self._nothing())))
            found: Tensor = trunk.norm_pre(x)
        return found.float()

    @property
    def patches_shape(self) -> tuple[int, int]:
        """Number and width of `patches`; raise ModelError if the tower has none."""
        if self._trunk.attn_pool is not None:
            raise ModelError(
                f"{self._label} has no features of patches: its tower pools by attention; choose a "
                "model such as ViT-B-16."
            )
        rows, columns = self.grid
        with torch.no_grad():
            width = self._of_patches(self._nothing()[:, :0]).shape[-1]
        return rows * columns, int(width)

    @torch.no_grad()
    def patches(self, images: Tensor) -> Tensor:
        """Return unit features [B, rows * columns, D] in float32 of the patches, row by row."""
        count, _ = self.patches_shape
        with self._precision(images):
            x = images if images.dim() == 3 else self.tokens(images)
            x = self._through(x, self._nothing())[:, self._prefix :][:, :count]
            found = self._of_patches(self._trunk.norm(x))
        return F.normalize(found.float(), dim=-1)

    def _of_patches(self, x: Tensor) -> Tensor:
        trunk = self._trunk
        found: Tensor = self._tower.head(trunk.head(trunk.head_drop(trunk.fc_norm(x))))
        return found

    def _through(self, x: Tensor, prompts: Tensor) -> Tensor:
        """Return the tokens' states behind the last block, without the prompts' states."""
        trunk, length, count = self._trunk, self.num_tokens, prompts.shape[1]
        deep = [trunk.norm_pre(prompts[:1]), *prompts[1:, None]]
        for number, block in enumerate(trunk.blocks):
            if count and number < len(deep):
                fresh = deep[number].to(x.dtype).expand(len(x), -1, -1)
                x = torch.cat([x[:, :length], fresh], dim=1)
            x = block(x)
        return x[:, :length]

    def _precision(self, images: Tensor) -> torch.autocast:
        rough = self._dtype == torch.bfloat16
        return torch.autocast(images.device.type, torch.bfloat16, enabled=rough)

    def _nothing(self) -> Tensor:
        """Return no prompts at all, [1, 0, width], on the model's device."""
        weight: Tensor = next(self._trunk.blocks.parameters())
        return weight.new_zeros(1, 0, self.width)

    @property
    def _prefix(self) -> int:
        return int(self._trunk.num_prefix_tokens)


def tower_of(model: Any, label: str, dtype: torch.dtype = torch.float32) -> VisionTower:
    """Return the image tower of an open_clip model, which is asked what it is."""
    from timm.models.vision_transformer import VisionTransformer

    plain = type(getattr(model.visual, "trunk", None)) is VisionTransformer
    return (TimmTower if plain else VisionTower)(model, label, dtype)
