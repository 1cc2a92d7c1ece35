"""Measure an exported model and print the rows of the model card's tables."""

from __future__ import annotations

from pathlib import Path

import torch
from open_clip.tokenizer import SimpleTokenizer

from bootstrap.pretrain.batches import Corpus
from bootstrap.pretrain.evaluate import held_out_accuracy, zip_accuracy, zip_classes
from bootstrap.pretrain.export import EMBEDDING, expand

PACS_DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
NOT_CALTECH_CLASSES = ("BACKGROUND_Google", "Faces_easy")


def held_out_rows(model: Path, corpus: Corpus) -> list[str]:
    """Return rows for the held-out parts of the pretraining sources, at the model's own size."""
    clip = expand(model)
    weights = clip.state_dict()
    weights[EMBEDDING] = weights[EMBEDDING][torch.from_numpy(corpus.index)]
    size = clip.visual.image_size[0]
    scores = held_out_accuracy(corpus, weights, size, torch.device("cpu"))
    counts = {part.name.split("-held")[0]: len(part.images) for part in corpus.held_out}
    return [f"| {n}, held-out | {counts[n]} | {100 * s:.1f} % |" for n, s in scores.items()]


def test_rows(model: Path, pacs: Path | None, caltech: Path | None) -> list[str]:
    """Return rows for PACS (per domain) and Caltech-101 (100 classes, all images)."""
    clip = expand(model)
    size = clip.visual.image_size[0]
    tokenizer = SimpleTokenizer()
    rows: list[str] = []
    shares: list[float] = []
    for domain in PACS_DOMAINS if pacs else ():
        assert pacs is not None
        classes = zip_classes(pacs, f"{domain}/")
        share, mean, count = zip_accuracy(clip, tokenizer, pacs, classes, size)
        shares.append(share)
        rows.append(f"| PACS {domain} | {count} | {100 * share:.1f} % | {100 * mean:.1f} % |")
    if shares:
        rows.append(f"| PACS, mean of domains | | {100 * sum(shares) / len(shares):.1f} % | |")
    if caltech:
        classes = zip_classes(caltech, "101_ObjectCategories/", NOT_CALTECH_CLASSES)
        share, mean, count = zip_accuracy(clip, tokenizer, caltech, classes, size)
        name = f"Caltech-101, {len(classes)} classes"
        rows.append(f"| {name} | {count} | {100 * share:.1f} % | {100 * mean:.1f} % |")
    return rows
