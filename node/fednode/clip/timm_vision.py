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


class TimmTower(VisionTower):
    """Encode images with shallow or deep prompts through timm's own blocks.

    They do not give the class token's query.
    """

    def __init__(self, model: Any, label: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(model, label, dtype)
        trunk = self._trunk = self._tower.trunk
        self.promptable = True
        self.layers, self._width = len(trunk.blocks), int(trunk.embed_dim)
        self._prefix = int(trunk.num_prefix_tokens)
        rows, columns = self._grid = trunk.patch_embed.grid_size
        self.num_tokens = self._prefix + rows * columns

    def _encode(self, images: Tensor, prompts: Tensor) -> VisionOutput:
        """Return the tower's outputs; `query` and `keys` are empty."""
        with self._precision(images):
            x = self._through(images if images.dim() == 3 else self.tokens(images), prompts)
            raw = self._tower.head(self._trunk.forward_head(self._trunk.norm(x)))
        raw = raw.float()
        nothing = raw.new_zeros(len(raw), 0, 0)
        return VisionOutput(F.normalize(raw, dim=-1), raw, nothing, nothing[..., None])

    @torch.no_grad()
    def tokens(self, images: Tensor) -> Tensor:
        """Return prefix and patches [B, length, width] before the first block."""
        trunk = self._trunk
        with self._precision(images):
            x = trunk._pos_embed(trunk.patch_embed(images.to(self._fitting(None))))
            return trunk.norm_pre(x).float()  # type: ignore[no-any-return]

    def _without_prompts(self, x: Tensor) -> Tensor:
        with self._precision(x):
            return self._through(x, self._fitting(None))

    def _project(self, x: Tensor) -> Tensor:
        trunk = self._trunk
        with self._precision(x):
            normed = trunk.fc_norm(trunk.norm(x))
            return self._tower.head(trunk.head(trunk.head_drop(normed)))  # type: ignore[no-any-return]

    def _through(self, x: Tensor, prompts: Tensor) -> Tensor:
        """Return the tokens' states behind the last block, without the prompts' states."""
        trunk, length = self._trunk, self.num_tokens
        deep = [trunk.norm_pre(prompts[:1]), *prompts[1:, None]]
        for number, block in enumerate(trunk.blocks):
            if prompts.shape[1] and number < len(deep):
                fresh = deep[number].to(x.dtype).expand(len(x), -1, -1)
                x = torch.cat([x[:, :length], fresh], dim=1)
            x = block(x)
        return x[:, :length]

    def _precision(self, images: Tensor) -> torch.autocast:
        rough = self._dtype == torch.bfloat16
        kind = "cpu" if images.is_meta else images.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=rough)


def tower_of(model: Any, label: str, dtype: torch.dtype = torch.float32) -> VisionTower:
    """Return the image tower of an open_clip model, which is asked what it is."""
    from timm.models.vision_transformer import VisionTransformer

    plain = type(getattr(model.visual, "trunk", None)) is VisionTransformer
    return (TimmTower if plain else VisionTower)(model, label, dtype)
