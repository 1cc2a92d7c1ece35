"""Folders of small drawn images, by class and by domain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

DOMAINS = ("Art", "Real World", "photo", "sketch")
CLASSES = ("dog", "guitar", "house", "person")


def draw(path: Path, seed: str) -> None:
    """Write an image whose colour tells its class and whose noise tells its file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
    colour = np.random.default_rng(number % 7).integers(0, 200, 3)
    noise = np.random.default_rng(number).integers(0, 55, (32, 32, 3))
    Image.fromarray((colour + noise).astype(np.uint8)).save(path)


def domains(
    folder: Path, names: Sequence[str] = DOMAINS, images: int = 5, classes: Sequence[str] = CLASSES
) -> Path:
    """Write root/<domain>/<class>/<image> (root/<data set>/... for data sets)."""
    for domain in names:
        for name in classes:
            for at in range(images):
                draw(folder / domain / name / f"{at}.png", f"{domain}{name}{at}")
    return folder
