"""Compute the training loss of one batch.

Images are classified among the texts of all concepts. Only some texts are encoded in a step; the
others come from a bank of the latest features, without gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from open_clip.model import CLIP

from bootstrap.pretrain.batches import Batch, Corpus
from bootstrap.pretrain.model import encode_images, encode_texts
from bootstrap.pretrain.styles import jitter, random_crops, restyle

ABOVE = 0.5  # weight of all hypernyms of an image together; its own label has 1
CAPTION, NOUN, STYLE = 0.15, 0.2, 0.05  # weights of the other losses
STYLE_SHARES = (0.12, 0.08, 0.07)  # sketches, cartoons, paintings


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss that was minimized and its parts, for the log."""

    total: float
    concept: float
    caption: float
    noun: float
    style: float


class Objective:
    """Hold the constant matrices of a corpus on the device."""

    def __init__(self, corpus: Corpus, device: torch.device) -> None:
        self.device = device
        self.corpus = corpus
        self.positive = torch.from_numpy(corpus.concepts.positive).to(device)
        self.related = torch.from_numpy(corpus.concepts.related).to(device)
        self.noun_positive = torch.from_numpy(corpus.noun_positive).to(device)
        self.prior = torch.from_numpy(corpus.prior).to(device)
        self.weight = torch.from_numpy(corpus.weight).to(device)

    def __call__(
        self, model: CLIP, bank: torch.Tensor, batch: Batch, size: int, gen: torch.Generator
    ) -> tuple[torch.Tensor, Losses]:
        """Return the loss at one resolution; write the fresh text features into the bank."""
        pixels = [random_crops(part.to(self.device), size, gen) for part in batch.images]
        images, style = restyle(jitter(torch.cat(pixels), gen), STYLE_SHARES, gen)
        with torch.autocast(self.device.type, torch.bfloat16):
            seen = encode_images(model, images)
            fresh, nouns, styles = self._texts(model, batch)
            captions = self._captions(model, batch)
        scale = model.logit_scale.clamp(max=4.605).exp()
        known = bank.index_copy(0, torch.from_numpy(batch.fresh).to(self.device), fresh)
        bank.copy_(known.detach())
        concept = self.concept_loss(scale * seen @ known.T + self.prior, batch)
        noun = self.noun_loss(scale * nouns @ known.T, batch.nouns)
        caption = _contrast(scale * seen[batch.captioned] @ captions.T)
        kind = F.cross_entropy(scale * seen @ styles.T, style.to(self.device))
        total = concept + CAPTION * caption + NOUN * noun + STYLE * kind
        parts = (float(part.detach()) for part in (total, concept, caption, noun, kind))
        return total, Losses(*parts)

    def _captions(self, model: CLIP, batch: Batch) -> torch.Tensor:
        if not len(batch.captions):
            return torch.zeros(0, model.text_projection.shape[1], device=self.device)
        return encode_texts(model, batch.captions.to(self.device))

    def _texts(self, model: CLIP, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode concept, noun and style texts in one pass: they are all short."""
        parts = (batch.texts, batch.noun_texts, batch.styles)
        width = max(part.shape[1] for part in parts)
        joined = torch.cat([F.pad(part, (0, width - part.shape[1])) for part in parts])
        out = encode_texts(model, joined.to(self.device))
        first, second, third = torch.split(out, [len(part) for part in parts])
        return first, second, third

    def concept_loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Classify images: each true concept against all that are not related to the image.

        logits: [B, C]. A true concept competes with no other true one, and kinds of the label
        ("Chihuahua" where it says "dog") count neither way.
        """
        labels = torch.from_numpy(batch.labels).to(self.device)
        own = F.one_hot(labels + 1, len(self.prior) + 1)[..., 1:].sum(dim=1).bool()
        hot = own.to(torch.float32)
        positive = (hot @ self.positive.float()) > 0
        related = (hot @ self.related.float()) > 0
        above = (positive & ~own).float() * self.weight
        weight = hot / hot.sum(dim=1, keepdim=True).clamp_min(1.0)
        weight = weight + ABOVE * above / above.sum(dim=1, keepdim=True).clamp_min(1.0)
        return _against(logits, related, weight)

    def noun_loss(self, logits: torch.Tensor, nouns: np.ndarray) -> torch.Tensor:
        """Place common nouns that no image shows beside their hypernyms: logits [Q, C]."""
        positive = self.noun_positive[torch.from_numpy(nouns).to(self.device)]
        weight = positive.float() * self.weight
        weight = weight / weight.sum(dim=1, keepdim=True).clamp_min(1e-6)
        # The kinds of the nearest concept are left out: a noun may be close to any of them.
        related = positive
        return _against(logits, related, weight)


def _against(logits: torch.Tensor, related: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the mean of weight * -log softmax(true among itself and the unrelated)."""
    others = logits.masked_fill(related, float("-inf")).logsumexp(dim=1, keepdim=True)
    return (weight * F.softplus(others - logits)).sum() / weight.sum().clamp_min(1.0)


def _contrast(logits: torch.Tensor) -> torch.Tensor:
    """Return CLIP's symmetric loss of matching pairs; nothing if there are too few."""
    if len(logits) < 2:
        return logits.sum() * 0.0
    target = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
