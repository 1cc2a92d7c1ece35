"""Redraw a photo as a sketch, a cartoon or a painting.

Every function takes and returns RGB images as uint8 [height, width, 3], and draws its random
numbers from the given generator. OpenCV does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Chance = np.random.Generator

cv2.setNumThreads(1)
WHITE: Final = 255


def _grey(image: Picture) -> Any:
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)


def _paper(ink: Any) -> Picture:
    """Return dark lines on white paper; ink [H, W] runs from 0 (no line) to 1 (line)."""
    page = (WHITE * (1 - np.clip(ink, 0, 1))).astype(np.uint8)
    return np.repeat(page[..., None], 3, axis=2)


def vary(image: Picture, saturation: float, brightness: float, turn: int = 0) -> Picture:
    """Scale saturation and brightness, and turn the hue by `turn` (0 to 179)."""
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV).astype(np.float32)
    hsv[..., 0] = (hsv[..., 0] + turn) % 180
    hsv[..., 1:] = np.clip(hsv[..., 1:] * (saturation, brightness), 0, 255)
    varied: Picture = cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB)
    return varied


def _strength(image: Picture, blur: float) -> Any:
    soft = cv2.GaussianBlur(_grey(image), (0, 0), blur).astype(np.float32)
    return np.hypot(cv2.Sobel(soft, cv2.CV_32F, 1, 0), cv2.Sobel(soft, cv2.CV_32F, 0, 1))


def _thin_lines(image: Picture, chance: Chance) -> Picture:
    """Draw Canny's edges, thickened at random."""
    blur = chance.uniform(0.8, 2.4)
    high = max(float(np.quantile(_strength(image, blur), chance.uniform(0.86, 0.95))), 25)
    soft = cv2.GaussianBlur(_grey(image), (0, 0), blur)
    lines = cv2.Canny(soft, 0.4 * high, high)
    for _ in range(int(chance.integers(0, 3))):
        lines = cv2.dilate(lines, np.ones((2, 2), np.uint8))
    ink = cv2.GaussianBlur(lines, (0, 0), chance.uniform(0.5, 0.9)) / 255
    return _paper(ink * chance.uniform(0.9, 1.6))


def _soft_lines(image: Picture, chance: Chance) -> Picture:
    """Draw the strength of edges."""
    found = _strength(image, chance.uniform(0.8, 2))
    found /= np.quantile(found, 0.97) + 20
    return _paper((found - chance.uniform(0.1, 0.35)) / chance.uniform(0.3, 0.6))


def _pencil(image: Picture, chance: Chance) -> Picture:
    """Divide the image by its blur: a pencil drawing with light shading."""
    grey = _grey(image).astype(np.float32)
    share = grey / (cv2.GaussianBlur(grey, (0, 0), chance.uniform(2, 8)) + 1)
    return _paper((chance.uniform(0.85, 0.95) - share) / chance.uniform(0.15, 0.35))


def _ink(image: Picture, chance: Chance) -> Picture:
    """Draw with ink: the extended difference of Gaussians (Winnemoeller et al. 2012)."""
    grey = _grey(image).astype(np.float32) / 255
    width, sharp = chance.uniform(0.8, 1.8), chance.uniform(12, 30)
    near, far = (cv2.GaussianBlur(grey, (0, 0), width * one) for one in (1, 1.6))
    found = (1 + sharp) * near - sharp * far
    level = chance.uniform(0.3, 0.65)
    return _paper(np.tanh(chance.uniform(4, 15) * np.maximum(level - found, 0)))


def sketch(image: Picture, chance: Chance) -> Picture:
    """Return a drawing in dark lines on white, in one of four styles."""
    ways: Sequence[Callable[[Picture, Chance], Picture]]
    ways = (_thin_lines, _thin_lines, _soft_lines, _pencil, _ink)
    return ways[int(chance.integers(len(ways)))](image, chance)


def cartoon(image: Picture, chance: Chance) -> Picture:
    """Return flat, vivid colours, most often with dark outlines."""
    out = image
    for _ in range(2):
        out = cv2.bilateralFilter(out, 7, chance.uniform(30, 80), 7)
    out = vary(cv2.medianBlur(out, 5), chance.uniform(1.2, 2.2), chance.uniform(1, 1.25))
    if chance.random() < 0.8:
        step = 255 / int(chance.integers(3, 8))
        light = out.max(axis=2, keepdims=True).astype(np.float32)
        flat = (np.round(light / step) * step + 1) / (light + 1)
        out = np.clip(out * flat, 0, 255).astype(np.uint8)
    if chance.random() < 0.35:
        out = vary(out, 1, 1, int(chance.integers(0, 180)))
    if chance.random() < 0.8:
        size = 2 * int(chance.integers(3, 7)) + 1
        lines = cv2.adaptiveThreshold(
            cv2.medianBlur(_grey(image), 5),
            255,
            cv2.ADAPTIVE_THRESH_MEAN_C,
            cv2.THRESH_BINARY,
            size,
            int(chance.integers(3, 9)),
        )
        keep = cv2.GaussianBlur(lines, (0, 0), 0.6)[..., None] / 255
        out = (out * keep).astype(np.uint8)
    return out


def _strokes_of_paint(image: Picture, size: int) -> Picture:
    """Give each pixel the mean of the calmest of four windows (Kuwahara et al. 1976)."""
    grey = _grey(image).astype(np.float32)
    mean = cv2.blur(image.astype(np.float32), (size, size))
    unrest = cv2.blur(grey * grey, (size, size)) - cv2.blur(grey, (size, size)) ** 2
    half = size // 2
    shifts = [(y, x) for y in (-half, half) for x in (-half, half)]
    means = np.stack([np.roll(mean, one, (0, 1)) for one in shifts])
    calm = np.stack([np.roll(unrest, one, (0, 1)) for one in shifts]).argmin(0)
    found: Picture = np.take_along_axis(means, calm[None, ..., None], 0)[0].astype(np.uint8)
    return found


def paint(image: Picture, chance: Chance, palette: Picture | None = None) -> Picture:
    """Return a painting: smoothed regions, sometimes the colours of `palette`, often a canvas."""
    way = int(chance.integers(3))
    size = 2 * int(chance.integers(2, 6)) + 1
    if way == 0:
        out = _strokes_of_paint(image, size)
    elif way == 1:
        out = cv2.stylization(
            image, sigma_s=float(chance.uniform(10, 60)), sigma_r=float(chance.uniform(0.2, 0.6))
        )
    else:
        out = cv2.medianBlur(image, size)
    out = vary(out, chance.uniform(0.6, 1.7), chance.uniform(0.8, 1.1))
    if palette is not None and chance.random() < 0.6:
        out = _with_colours_of(out, palette, chance.uniform(0.5, 1))
    if chance.random() < 0.6:
        canvas = chance.normal(0, chance.uniform(5, 25), out.shape[:2]).astype(np.float32)
        canvas = cv2.GaussianBlur(canvas, (2 * int(chance.integers(0, 5)) + 1, 1), 0)
        out = np.clip(out + canvas[..., None], 0, 255).astype(np.uint8)
    return out


def _with_colours_of(image: Picture, palette: Picture, share: float) -> Picture:
    """Move mean and spread of the image's Lab channels towards the palette's."""
    own, other = (
        cv2.cvtColor(one, cv2.COLOR_RGB2LAB).astype(np.float32) for one in (image, palette)
    )
    (m, s), (n, t) = ((one.mean((0, 1)), one.std((0, 1)) + 1) for one in (own, other))
    moved = (own - m) / s * (share * t + (1 - share) * s) + share * n + (1 - share) * m
    out: Picture = cv2.cvtColor(np.clip(moved, 0, 255).astype(np.uint8), cv2.COLOR_LAB2RGB)
    return out
