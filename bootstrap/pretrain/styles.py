"""Augment batches of images with tensor operations; no per-image Python, no PIL.

All functions take and return float images [B, 3, S, S] in 0..1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torchvision.ops import roi_align  # type: ignore[import-untyped]

LUMA = (0.299, 0.587, 0.114)


def random_crops(
    images: torch.Tensor, size: int, gen: torch.Generator, smallest: float = 0.5
) -> torch.Tensor:
    """Cut a random part (share `smallest`..1 of the area) of each image and resize it; flip half.

    images: uint8 [B, H, W, 3] -> float [B, 3, size, size].
    """
    batch, side = images.shape[0], images.shape[1]
    area = torch.empty(batch).uniform_(smallest, 1.0, generator=gen)
    ratio = torch.empty(batch).uniform_(-0.2, 0.2, generator=gen).exp()
    width = (area * ratio).sqrt().clamp(max=1.0) * side
    height = (area / ratio).sqrt().clamp(max=1.0) * side
    left = torch.rand(batch, generator=gen) * (side - width)
    top = torch.rand(batch, generator=gen) * (side - height)
    boxes = torch.stack([torch.arange(batch).float(), left, top, left + width, top + height], dim=1)
    out = resize_boxes(images, boxes, size)
    flip = (torch.rand(batch, generator=gen) < 0.5).to(images.device)
    return torch.where(flip[:, None, None, None], out.flip(3), out)


def resize_boxes(images: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    """Resize boxes [B, 5] (row, left, top, right, bottom) of uint8 images to squares."""
    pixels = images.permute(0, 3, 1, 2).to(torch.float32).div_(255.0).contiguous()
    samples = 2 if images.shape[1] > size else 1
    crops: torch.Tensor = roi_align(
        pixels, boxes.to(pixels.device), size, sampling_ratio=samples, aligned=True
    )
    return crops


def whole(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize whole uint8 images [B, H, W, 3] to float [B, 3, size, size], without chance."""
    pixels = images.permute(0, 3, 1, 2).to(torch.float32).div_(255.0)
    return F.interpolate(
        pixels, size=(size, size), mode="bicubic", antialias=True, align_corners=False
    ).clamp_(0.0, 1.0)


def jitter(images: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """Vary brightness, contrast and saturation, and turn one image in ten grey."""
    batch = images.shape[0]

    def draw(low: float, high: float) -> torch.Tensor:
        value = torch.empty(batch, 1, 1, 1).uniform_(low, high, generator=gen)
        return value.to(images.device)

    grey = luma(images)
    saturation = draw(0.6, 1.4)
    saturation = torch.where(draw(0.0, 1.0) < 0.1, torch.zeros_like(saturation), saturation)
    out = grey + (images - grey) * saturation
    mean = grey.mean(dim=(2, 3), keepdim=True)
    return ((out - mean) * draw(0.7, 1.3) + mean * draw(0.75, 1.25)).clamp(0.0, 1.0)


def luma(images: torch.Tensor) -> torch.Tensor:
    """Return the grey image [B, 1, S, S]."""
    weights = torch.tensor(LUMA, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


def edges(images: torch.Tensor) -> torch.Tensor:
    """Return the Sobel edge strength of the grey image, its 90th percentile at 1."""
    kernel = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]])
    pair = torch.stack([kernel, kernel.T]).unsqueeze(1).to(images.device)
    grey = F.pad(luma(images), (1, 1, 1, 1), mode="replicate")
    strength = F.conv2d(grey, pair).square().sum(dim=1, keepdim=True).sqrt()
    top = strength.flatten(1).quantile(0.9, dim=1).clamp_min(0.05).view(-1, 1, 1, 1)
    return (strength / top).clamp(0.0, 1.0)


def sketch(images: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """Draw dark lines on white where the image has edges, at a random threshold."""
    batch = images.shape[0]
    low = torch.empty(batch, 1, 1, 1).uniform_(0.15, 0.55, generator=gen).to(images.device)
    sharp = torch.empty(batch, 1, 1, 1).uniform_(2.0, 8.0, generator=gen).to(images.device)
    lines = ((edges(images) - low) * sharp).clamp(0.0, 1.0)
    return (1.0 - lines).expand(-1, 3, -1, -1)


def cartoon(images: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """Flatten colours to a few strong levels and draw the edges in black."""
    batch = images.shape[0]
    levels = torch.randint(3, 6, (batch, 1, 1, 1), generator=gen).to(images.device)
    smooth = _median(images)
    grey = luma(smooth)
    vivid = (grey + (smooth - grey) * 1.8).clamp(0.0, 1.0)
    flat = (vivid * levels).round() / levels
    lines = ((edges(smooth) - 0.6) * 4.0).clamp(0.0, 1.0)
    return flat * (1.0 - lines)


def painting(images: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """Smear into strokes, shift the palette and add canvas noise."""
    batch = images.shape[0]
    smooth = _median(_median(images))
    gain = torch.empty(batch, 3, 1, 1).uniform_(0.7, 1.2, generator=gen).to(images.device)
    noise = torch.empty(batch, 1, *images.shape[2:]).normal_(0.0, 0.05, generator=gen)
    return (smooth * gain + noise.to(images.device)).clamp(0.0, 1.0)


def _median(images: torch.Tensor) -> torch.Tensor:
    """Approximate a 3x3 median by averaging the local minimum and maximum after a blur."""
    blur = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    edge = F.pad(blur, (1, 1, 1, 1), mode="replicate")
    return (F.max_pool2d(edge, 3, stride=1) - F.max_pool2d(-edge, 3, stride=1)) / 2


def restyle(
    images: torch.Tensor, shares: tuple[float, float, float], gen: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn shares of the batch into sketches, cartoons and paintings.

    Return the images and each one's index into captions.STYLES. Which rows change is drawn anew,
    so that no data source keeps its photos.
    """
    batch = images.shape[0]
    order = torch.randperm(batch, generator=gen)
    style = torch.zeros(batch, dtype=torch.int64)
    out = images.clone()
    start = 0
    for index, (share, draw) in enumerate(
        zip(shares, (sketch, cartoon, painting), strict=True), start=1
    ):
        rows = order[start : start + round(share * batch)]
        start += len(rows)
        if len(rows):
            style[rows] = index
            on = rows.to(images.device)
            out[on] = draw(images[on], gen)
    return out, style
