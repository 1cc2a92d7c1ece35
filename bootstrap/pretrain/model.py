"""Build the small CLIP and run its towers at any resolution and text length.

Training keeps only the rows of the token embedding that its captions can touch; a text therefore
holds row numbers. `index` (sorted, so the end token stays the highest number, which open_clip
relies on) maps rows to ids of the CLIP vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

VOCABULARY = 49408
ATTENTION = {"cpu": [SDPBackend.MATH], "cuda": [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]}
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)

CONFIG: dict[str, Any] = {
    "embed_dim": 256,
    "vision_cfg": {
        "image_size": 64,
        "patch_size": 8,
        "width": 256,
        "layers": 6,
        "head_width": 64,
    },
    "text_cfg": {
        "context_length": 77,
        "vocab_size": VOCABULARY,
        "width": 256,
        "heads": 4,
        "layers": 3,
    },
    "preprocess_cfg": {
        "size": [64, 64],
        "mode": "RGB",
        "mean": list(MEAN),
        "std": list(STD),
        "interpolation": "bilinear",  # as soft as the crops it was trained on
        "resize_mode": "shortest",
    },
}


def build(config: dict[str, Any], rows: int) -> CLIP:
    """Build an open_clip CLIP whose token embedding has only `rows` rows."""
    text = {**config["text_cfg"], "vocab_size": rows}
    return CLIP(config["embed_dim"], dict(config["vision_cfg"]), text, init_logit_scale=2.996)


def normalize_pixels(images: torch.Tensor) -> torch.Tensor:
    """Apply the model's mean and deviation to images [B, 3, S, S] in 0..1."""
    mean = torch.tensor(MEAN, device=images.device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=images.device).view(1, 3, 1, 1)
    return (images - mean) / std


def encode_images(model: CLIP, images: torch.Tensor) -> torch.Tensor:
    """Return unit features [B, D] of images [B, 3, S, S] in 0..1, for any S of whole patches.

    The positional embedding is learned at the full grid and resampled to the grid at hand, so
    that cheap training at low resolution also trains the full one.
    """
    visual = model.visual
    patch = visual.patch_size[0]
    grid = images.shape[-1] // patch
    position = visual.positional_embedding
    if grid != visual.grid_size[0]:
        position = resample(position, grid)
    # On a CPU and for these short sequences the plain kernel is twice as fast as the fused one.
    with sdpa_kernel(ATTENTION[images.device.type]):
        out: torch.Tensor = functional_call(
            visual, {"positional_embedding": position}, (normalize_pixels(images),)
        )
    return F.normalize(out.float(), dim=-1)


def resample(position: torch.Tensor, grid: int) -> torch.Tensor:
    """Resample a positional embedding [1 + g*g, width] to a grid of `grid` patches a side."""
    full = round((len(position) - 1) ** 0.5)
    if full == grid:
        return position
    square = position[1:].T.reshape(1, -1, full, full)
    square = F.interpolate(
        square, size=(grid, grid), mode="bilinear", antialias=True, align_corners=False
    )
    return torch.cat([position[:1], square.reshape(-1, grid * grid).T])


def encode_texts(model: CLIP, texts: torch.Tensor) -> torch.Tensor:
    """Return unit features [B, D] of texts [B, L] of row numbers, L <= context_length."""
    length = texts.shape[1]
    position = model.positional_embedding[:length].to(torch.float32)
    x = model.token_embedding(texts) + position
    with sdpa_kernel(ATTENTION[texts.device.type]):
        x = model.transformer(x, attn_mask=model.attn_mask[:length, :length])
    x = model.ln_final(x)
    last = x[torch.arange(len(x), device=x.device), texts.argmax(dim=-1)]
    return F.normalize((last @ model.text_projection).float(), dim=-1)


def matrices(model: CLIP) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Split the parameters: hidden matrices (Muon), other weights, and those without decay."""
    hidden: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, param in model.named_parameters():
        if "resblocks" in name and param.ndim == 2:
            hidden.append(param)
        elif param.ndim < 2 or "embedding" in name:
            free.append(param)
        else:
            plain.append(param)
    return hidden, plain, free
