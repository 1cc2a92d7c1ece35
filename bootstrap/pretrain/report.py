"""Measure an exported model and print the rows of the model card's tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from open_clip.tokenizer import SimpleTokenizer

from bootstrap.pretrain.batches import HELD_OUT, Corpus
from bootstrap.pretrain.evaluate import held_out_accuracy, zip_accuracy, zip_classes
from node.clip.mini import EMBEDDING, expand

PACS_DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
NOT_CALTECH_CLASSES = ("BACKGROUND_Google", "Faces_easy")


def held_out_rows(model: Path, corpus: Corpus) -> list[str]:
    """Return rows for the held-out parts of the pretraining sources, at the model's own size."""
    clip, _, _ = expand(model)
    weights = clip.state_dict()
    weights[EMBEDDING] = weights[EMBEDDING][torch.from_numpy(corpus.index)]
    size = clip.visual.image_size[0]
    scores = held_out_accuracy(corpus, weights, size, torch.device("cpu"))
    rows: list[str] = []
    for part in corpus.held_out:
        name = part.name.removesuffix(HELD_OUT)
        chance = 1 / len(np.unique(part.labels[:, 0]))
        rows.append(
            f"| {name} | {len(part.images):,} | {_percent(scores[name])} | {_percent(chance)} |"
        )
    return rows


def zero_shot_rows(model: Path, pacs: Path | None, caltech: Path | None) -> list[str]:
    """Return rows for PACS (per domain) and Caltech-101 (100 classes, all images)."""
    clip, _, _ = expand(model)
    size = clip.visual.image_size[0]
    tokenizer = SimpleTokenizer()
    rows: list[str] = []
    shares: list[float] = []
    for domain in PACS_DOMAINS if pacs else ():
        assert pacs is not None
        classes = zip_classes(pacs, f"{domain}/")
        share, mean, count = zip_accuracy(clip, tokenizer, pacs, classes, size)
        shares.append(share)
        rows.append(_row(f"PACS {domain}", count, share, mean, len(classes)))
    if shares:
        rows.append(f"| PACS, mean of domains | | {_percent(sum(shares) / len(shares))} | | |")
    if caltech:
        classes = zip_classes(caltech, "101_ObjectCategories/", NOT_CALTECH_CLASSES)
        share, mean, count = zip_accuracy(clip, tokenizer, caltech, classes, size)
        name = f"Caltech-101, {len(classes)} classes"
        rows.append(_row(name, count, share, mean, len(classes)))
    return rows


def _row(name: str, count: int, share: float, mean: float, classes: int) -> str:
    cells = (name, f"{count:,}", _percent(share), _percent(mean), _percent(1 / classes))
    return "| " + " | ".join(cells) + " |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
