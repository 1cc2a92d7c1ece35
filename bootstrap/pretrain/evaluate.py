"""Measure zero-shot accuracy: on held-out packed images, and on folders or zip files of classes."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from PIL import Image

from bootstrap.pretrain.batches import HELD_OUT, Corpus
from bootstrap.pretrain.model import CONFIG, build, encode_images, encode_texts
from bootstrap.pretrain.styles import whole
from node.errors import DataError

TEMPLATE = "a photo of a {}."
RESAMPLING = Image.Resampling[CONFIG["preprocess_cfg"]["interpolation"].upper()]


@torch.inference_mode()
def held_out_accuracy(
    corpus: Corpus,
    weights: dict[str, torch.Tensor],
    size: int,
    device: torch.device,
    limit: int = 0,
) -> dict[str, float]:
    """Return zero-shot top-1 for each held-out part, among the classes of that part.

    With a limit, only that many images, evenly spread, are used.
    """
    vision = {**CONFIG["vision_cfg"], "image_size": _trained_size(weights)}
    model = build({**CONFIG, "vision_cfg": vision}, len(corpus.index)).to(device)
    model.load_state_dict(weights)
    model.eval()
    scores: dict[str, float] = {}
    for part in corpus.held_out:
        pick = np.arange(len(part.images))
        if limit:
            pick = np.linspace(0, len(pick) - 1, min(limit, len(pick))).astype(int)
        truth = corpus.concepts.index(part.labels[:, 0])[pick]
        classes = np.unique(corpus.concepts.index(part.labels[:, 0]))
        texts = [corpus.captioner.compose(TEMPLATE, corpus.concepts.lemmas[c][0]) for c in classes]
        features = encode_texts(model, corpus.rows(texts).to(device))
        guess = [
            _guess(model, part.images[rows], features, size, device)
            for rows in np.array_split(pick, max(1, len(pick) // 250))
        ]
        hits = classes[np.concatenate(guess)] == truth
        scores[part.name.removesuffix(HELD_OUT)] = float(hits.mean())
    return scores


def _trained_size(weights: dict[str, torch.Tensor]) -> int:
    """Return the image size in pixels that a positional embedding was made for."""
    patches = len(weights["visual.positional_embedding"]) - 1
    return math.isqrt(patches) * int(CONFIG["vision_cfg"]["patch_size"])


def _guess(
    model: CLIP,
    images: npt.NDArray[np.uint8],
    features: torch.Tensor,
    size: int,
    device: torch.device,
) -> npt.NDArray[np.int64]:
    pixels = whole(torch.from_numpy(np.ascontiguousarray(images)).to(device), size)
    with torch.autocast(device.type, torch.bfloat16):
        seen = encode_images(model, pixels)
    guess: npt.NDArray[np.int64] = (seen @ features.T).argmax(dim=1).cpu().numpy()
    return guess


def zip_classes(path: Path, prefix: str, skip: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the image entries of a zip file by class folder, for all folders below a prefix."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: give the zip file of the test images")
    left_out = set(skip)
    found: dict[str, list[str]] = {}
    with zipfile.ZipFile(path) as file:
        for name in sorted(file.namelist()):
            if not name.startswith(prefix) or not name.lower().endswith((".jpg", ".png")):
                continue
            group = name[len(prefix) :].split("/")[0]
            if group not in left_out:
                found.setdefault(group, []).append(name)
    if not found:
        raise DataError(f"{path} has no class folders below {prefix!r}")
    return found


@torch.inference_mode()
def zip_accuracy(
    model: CLIP,
    encode: Callable[[Sequence[str]], torch.Tensor],
    path: Path,
    classes: dict[str, list[str]],
    size: int,
    template: str = TEMPLATE,
) -> tuple[float, float, int]:
    """Return (accuracy, mean of the classes' accuracies, images) of a model of full vocabulary.

    `encode` tokenizes texts to ids [N, 77]. Images are resized on the short side and cropped.
    """
    names = [group.replace("_", " ").lower() for group in classes]
    tokens = encode([template.format(name) for name in names])
    features = F.normalize(model.encode_text(tokens).float(), dim=-1)
    right: list[float] = []
    total = hits = 0
    with zipfile.ZipFile(path) as file:
        for number, entries in enumerate(classes.values()):
            good = 0
            for start in range(0, len(entries), 256):
                raw = [_read(file, entry, size) for entry in entries[start : start + 256]]
                pixels = torch.from_numpy(np.stack(raw)).permute(0, 3, 1, 2).float() / 255
                seen = encode_images(model, pixels)
                good += int(((seen @ features.T).argmax(dim=1) == number).sum())
            right.append(good / len(entries))
            hits, total = hits + good, total + len(entries)
    return hits / total, float(np.mean(right)), total


def _read(file: zipfile.ZipFile, entry: str, size: int) -> npt.NDArray[np.uint8]:
    with Image.open(io.BytesIO(file.read(entry))) as raw:
        image = raw.convert("RGB")
    share = size / min(image.size)
    wide = max(size, round(image.width * share))
    high = max(size, round(image.height * share))
    image = image.resize((wide, high), RESAMPLING)
    left, top = (wide - size) // 2, (high - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)), np.uint8)
