"""The frozen vision transformer with visual prompts: [CLS, patches, prompts].

The tower works in two steps. `tokens` computes everything before the first prompt, which depends on
the image alone and can be kept. `encode` takes images, or their tokens, and runs the transformer
with prompts. `conv1` may be a convolutional trunk (a hybrid vision transformer;
node/fednode/clip/trunk.py), whose tokens count as patches here. A trunk always computes in the
precision of its weights.

Attention does not know the order of tokens, so prompts follow the patches here, whatever place a
paper gives them. Prompts that the next block replaces need no query, no perceptron and no place in
the batch: their keys and values are computed once for all images. If the model reads nothing but
the class token, the last block computes nothing else. Exact, forward and backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from open_clip.transformer import VisionTransformer
from torch import Tensor, nn

from fednode.clip import cuda_graphs
from fednode.clip.blocks import Block, attend, blocks_of
from fednode.clip.trunk import Trunk
from fednode.errors import ModelError


class VisionOutput(NamedTuple):
    """The tower's outputs for B images with m prompts. Fed-DPT's equation 5 uses query and keys.

    Attributes:
        features: unit vectors [B, D], float32
        raw: [B, D], float32, the same vectors as the tower gives them, before they are made unit
        query: [B, heads, head width], the class token's query in the last block
        keys: [B or 1, heads, m, head width], the prompts' keys in the last block, not scaled
    """

    features: Tensor
    raw: Tensor
    query: Tensor
    keys: Tensor


class VisionTower:
    """Encode images with shallow or deep prompts, in any plain or hybrid ViT of open_clip.

    Attributes:
        promptable: whether this tower takes prompts: a vision transformer of CLIP's plain blocks
        has_class_token: whether it has a class token, whose query `encode` returns
        layers: number of blocks; deep prompts have at most as many parts
        num_tokens: of an image: prefix and patches; 0 if the tower takes no prompts
        image_size: rows and columns of pixels
        batch_invariant: whether an image's tokens have the same bits in every batch
    """

    def __init__(self, model: Any, label: str, dtype: torch.dtype = torch.float32) -> None:
        """Take the image modules of an open_clip model. dtype: of matrix products."""
        self._tower: Any = model.visual
        self._label, self._dtype = label, dtype
        plain = type(self._tower) is VisionTransformer
        self._blocks = blocks_of(self._tower.transformer, dtype) if plain else []
        self.promptable = self.has_class_token = bool(self._blocks)
        self.layers, self._prefix = len(self._blocks), 1
        positions = self._tower.positional_embedding.shape if self._blocks else (0, 0)
        self.num_tokens, self._width = map(int, positions)
        size = self._tower.image_size
        high, wide = size if isinstance(size, list | tuple) else (size, size)
        self.image_size = int(high), int(wide)
        self._grid: tuple[int, int] = getattr(self._tower, "grid_size", (0, 0))
        conv1 = getattr(self._tower, "conv1", None)
        on_cpu = isinstance(conv1, Trunk) and conv1.project.weight.device.type == "cpu"
        self.batch_invariant = on_cpu

    @property
    def width(self) -> int:
        """Width of a visual prompt vector; raise ModelError if the tower takes no prompts."""
        self._need_blocks()
        return self._width

    @property
    def tokens_smaller_than_pixels(self) -> bool:
        high, wide = self.image_size
        return self.promptable and self.num_tokens * self._width < 3 * high * wide

    def encode(self, images: Tensor, prompts: Tensor | None = None) -> VisionOutput:
        """Return the tower's outputs for preprocessed images.

        Args:
            images: [B, 3, H, W], or what `tokens` returned of them, [B, length, width]
            prompts: [d, m, width], visual tokens for blocks 0 to d - 1; shallow prompts (VPT,
                Fed-DPT) have d = 1. Part i replaces the outputs of part i - 1; the last part stays
                to the end. Prompts have no position; the first part passes ln_pre, the others do
                not.

        Raise ModelError if prompts do not fit.
        """
        given = images, self._fitting(prompts)
        return VisionOutput(*cuda_graphs.run((self,), self._encode, given))

    def _encode(self, images: Tensor, prompts: Tensor) -> VisionOutput:
        x = images if images.dim() == 3 else self.tokens(images)
        deep = [self._tower.ln_pre(prompts[:1]), *prompts[1:, None]]
        deep += [x[:1, :0]] * (self.layers - len(deep))  # no new prompts
        for number, block in enumerate(self._blocks[:-1]):
            step = _replaced if number + 1 < len(prompts) else _kept
            x = step(block, x, deep[number])
        return self._read(x, deep[-1])

    @torch.no_grad()
    def tokens(self, images: Tensor) -> Tensor:
        """Return class token and patches [B, length, width] after ln_pre, without gradients.

        Raise ModelError if the tower takes no prompts.
        """
        self._need_blocks()
        tower = self._tower
        kind = tower.class_embedding.dtype
        if isinstance(tower.conv1, nn.Conv2d):
            weight = tower.conv1.weight.to(self._dtype)
            x = F.conv2d(images.to(weight), weight, tower.conv1.bias, stride=tower.conv1.stride)
        else:
            x = tower.conv1(images.to(tower.class_embedding))
        x = x.flatten(2).transpose(1, 2).to(kind)
        first = tower.class_embedding.expand(len(x), 1, -1)
        tokens: Tensor = tower.ln_pre(torch.cat([first, x], dim=1) + tower.positional_embedding)
        return tokens

    @property
    def patches_shape(self) -> tuple[int, int]:
        """Number and width of `patches`; raise ModelError if the tower has none."""
        self._need_blocks()
        if getattr(self._tower, "trunk", self._tower).attn_pool is not None:
            raise ModelError(
                f"{self._label} has no features of patches: its tower pools by attention; choose a "
                "model such as ViT-B-16."
            )
        rows, columns = self._grid
        with torch.no_grad():
            width = self._project(self._fitting(None)).shape[-1]
        return rows * columns, int(width)

    @torch.no_grad()
    def patches(self, images: Tensor) -> Tensor:
        """Return unit features [B, rows * columns, D] in float32 of the patches, row by row.

        A patch goes through the tower's last norm and projection, as the class token does. images:
        as in `encode`. Raise ModelError if the tower has no such patches.
        """
        count, _ = self.patches_shape
        x = self._without_prompts(images if images.dim() == 3 else self.tokens(images))
        patches = self._project(x[:, self._prefix : self._prefix + count])
        return F.normalize(patches.float(), dim=-1)

    def _without_prompts(self, x: Tensor) -> Tensor:
        """Return the states of tokens behind the last block."""
        for block in self._blocks:
            x = _kept(block, x, x[:1, :0])
        return x

    def _project(self, x: Tensor) -> Tensor:
        """Return features [B, n, D], not unit, of states [B, n, width]."""
        out: Tensor = self._tower.ln_post(x)
        return out if self._tower.proj is None else out @ self._tower.proj

    def _read(self, x: Tensor, fresh: Tensor) -> VisionOutput:
        """Run the last block, for the class token alone if nothing else is read."""
        tower, block = self._tower, self._blocks[-1]
        alone = tower.attn_pool is None and tower.pool_type == "tok"
        normed = block.ln_1(x)
        k, v = _with(block, block.project(normed, 1, 3), fresh, len(x))
        (q,) = block.project(normed[:, :1] if alone else normed, 0, 1)
        rows = x[:, : q.shape[2]]
        out = block.finish(rows, attend(q, k, v))
        count = self.num_tokens
        pooled, _ = tower._pool(out[:, :count])
        if tower.proj is not None:
            pooled = pooled @ tower.proj
        return VisionOutput(F.normalize(pooled, dim=-1), pooled, q[:, :, 0], k[:, :, count:])

    def _fitting(self, prompts: Tensor | None) -> Tensor:
        """Return prompts, or none at all, [1, 0, width]; raise ModelError if they do not fit."""
        width = self.width
        if prompts is None:
            weight: Tensor = next(self._tower.parameters())
            return weight.new_zeros(1, 0, width)
        if prompts.dim() != 3 or prompts.shape[2] != width or not 0 < len(prompts) <= self.layers:
            raise ModelError(
                f"visual prompts are {list(prompts.shape)}; {self._label} takes [1 to "
                f"{self.layers}, any number, {width}]."
            )
        return prompts

    def _need_blocks(self) -> None:
        if not self.promptable:
            kind = type(getattr(self._tower, "trunk", self._tower)).__name__
            raise ModelError(
                f"{self._label} takes no visual prompts and gives no features of patches: its "
                f"vision tower ({kind}) is not a ViT of plain blocks; choose a policy of learned "
                "text prompts or fedclip, or a model such as ViT-B-16."
            )


def _replaced(block: Block, x: Tensor, fresh: Tensor) -> Tensor:
    """Run a block whose prompts [1, m, width] all images attend to; drop the prompts after it."""
    q, *rest = block.project_parts((x,))
    k, v = _with(block, rest, fresh, len(x))
    return block.finish(x, attend(q, k, v))


def _kept(block: Block, x: Tensor, fresh: Tensor) -> Tensor:
    """Run a block; its new prompts [1, m, width], if any, become tokens of each image."""
    if not fresh.shape[1]:
        return block.finish(x, attend(*block.project_parts((x,))))
    q, k, v = block.project_parts((x, fresh))
    x = torch.cat([x, fresh.expand(len(x), -1, -1)], dim=1)
    return block.finish(x, attend(q, k, v))


def _with(block: Block, own: Any, fresh: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return keys and values of the batch, followed by those of prompts that all images share."""
    k, v = own
    if not fresh.shape[1]:
        return k, v
    more = block.project(block.ln_1(fresh), 1, 3)
    k, v = (
        torch.cat([array, extra.expand(count, -1, -1, -1)], dim=2)
        for array, extra in zip((k, v), more, strict=True)
    )
    return k, v
