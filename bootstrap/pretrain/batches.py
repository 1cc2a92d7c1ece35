"""Draw batches from packed sources: which images, their concepts, which texts are encoded.

Everything is drawn from a generator seeded by (run seed, step), so no generator state is saved
and a resumed run draws what an uninterrupted one would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bootstrap.pretrain.captions import (
    STYLE_NAMES,
    STYLES,
    Captioner,
    Concepts,
    build_concepts,
    common_nouns,
    pad,
    touched_tokens,
    useful_ancestors,
)
from bootstrap.pretrain.pack import Packed, load, packed_names
from bootstrap.pretrain.wordnet import WordNet

HELD_OUT = "-held-out"
# Share of each source in a batch; a source that is not packed gives its share to the others.
MIX = {
    "tiny-imagenet": 0.48,
    "cifar100": 0.17,
    "cifar10": 0.10,
    "flickr8k": 0.16,
    "noto-emoji": 0.045,
    "imagenet-samples": 0.045,
}
RARE_CAPTION_TOKEN = 5  # captions with a token seen less often are left out: it saves rows


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step reads. Texts hold row numbers of the token embedding.

    images    uint8 [n, side, side, 3] for each source, in the order of `labels`
    labels    [B, 4] concept numbers, -1 where none
    fresh     [T] concepts whose texts are encoded in this step
    texts     [T, L] their captions
    nouns     [Q] rows of Vocabulary.noun_positive, and their captions [Q, L]
    styles    [4, L] one caption for each of STYLES
    captioned [F] rows of the batch with a real caption, and these captions [F, L]
    """

    images: list[torch.Tensor]
    labels: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.int64]
    texts: torch.Tensor
    nouns: npt.NDArray[np.int64]
    noun_texts: torch.Tensor
    styles: torch.Tensor
    captioned: npt.NDArray[np.int64]
    captions: torch.Tensor


class Corpus:
    """All packed training sources with their concepts and token rows."""

    def __init__(self, packed: Path, words: WordNet, captioner: Captioner) -> None:
        self.captioner = captioner
        found = [name for name in packed_names(packed) if not name.endswith(HELD_OUT)]
        self.sources: list[Packed] = [load(packed, name) for name in found]
        self.held_out = [load(packed, n) for n in packed_names(packed) if n.endswith(HELD_OUT)]
        everything = np.concatenate([s.labels.ravel() for s in (*self.sources, *self.held_out)])
        self.concepts: Concepts = build_concepts(
            words, (int(v) for v in np.unique(everything[everything >= 0]))
        )
        self.labels = [self.concepts.index(s.labels) for s in self.sources]
        share = np.array([MIX.get(s.name, 0.05) for s in self.sources])
        self.share: npt.NDArray[np.float64] = share / share.sum()
        self.nouns = common_nouns(words, captioner.tokens, self.concepts)
        self.noun_positive = np.zeros((len(self.nouns), len(self.concepts.offsets)), np.bool_)
        for row, (offset, _) in zip(self.noun_positive, self.nouns, strict=True):
            up = self.concepts.index(np.array(useful_ancestors(words, offset), np.int32))
            row[up[up >= 0]] = True
        self.captions = [self._usable(s.captions) for s in self.sources]
        self.index = self._rows()
        self.prior = self._prior()
        common = [any(len(captioner.tokens(w)) == 1 for w in ws) for ws in self.concepts.lemmas]
        # "dog" and "animal" are what people ask for; "placental" and "sporting dog" are not.
        self.weight = np.where(common, 1.0, 0.2).astype(np.float32)

    def _usable(self, captions: list[list[str]]) -> list[list[list[int]]]:
        """Tokenize captions and drop those with rare tokens."""
        tokens = [[self.captioner.caption(text) for text in texts] for texts in captions]
        counts = Counter(t for texts in tokens for text in texts for t in text)
        return [
            [t for t in texts if min(counts[i] for i in t) >= RARE_CAPTION_TOKEN]
            for texts in tokens
        ]

    def _rows(self) -> npt.NDArray[np.int64]:
        """Return the sorted ids of all tokens that training can touch."""
        lemmas = [w for words in self.concepts.lemmas for w in words]
        made = touched_tokens(self.captioner, [*lemmas, *(word for _, word in self.nouns)])
        real = {t for source in self.captions for texts in source for text in texts for t in text}
        return np.union1d(made, np.array(sorted(real), np.int64))

    def _prior(self) -> npt.NDArray[np.float32]:
        """Return how often each concept is true of a training image, as a logarithm.

        Added to the logits in training only (logit adjustment, Menon et al., 2021), so that rare
        concepts are not pushed away from every image.
        """
        total = np.zeros(len(self.concepts.offsets))
        for labels, share in zip(self.labels, self.share, strict=True):
            for column in labels.T:
                own = np.bincount(column[column >= 0], minlength=len(total))
                total += share / len(labels) * (own @ self.concepts.positive)
        floor = 1e-5
        prior: npt.NDArray[np.float32] = np.log(np.maximum(total, floor)).astype(np.float32)
        return prior

    def rows(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return texts of token ids as padded row numbers."""
        padded = pad(texts)
        out = np.searchsorted(self.index, padded)
        return torch.from_numpy(np.where(padded == 0, 0, out))

    def draw(self, size: int, fresh: int, nouns: int, rng: np.random.Generator) -> Batch:
        """Draw one batch of about `size` images, `fresh` concept texts and `nouns` noun texts."""
        counts = np.maximum(1, np.round(self.share * size)).astype(int)
        images, labels, captions, captioned = [], [], [], []
        start = 0
        for source, concept, texts, count in zip(
            self.sources, self.labels, self.captions, counts, strict=True
        ):
            rows = (
                np.sort(rng.choice(len(source.images), int(count), replace=False))
                if (count < len(source.images))
                else rng.integers(0, len(source.images), int(count))
            )
            images.append(torch.from_numpy(np.ascontiguousarray(source.images[rows])))
            labels.append(concept[rows])
            for at, row in enumerate(rows):
                if texts[row]:
                    captions.append(texts[row][int(rng.integers(len(texts[row])))])
                    captioned.append(start + at)
            start += len(rows)
        label = np.concatenate(labels)
        chosen = self._fresh(label, fresh, rng)
        make = self.captioner
        texts_of = [make.random(self.concepts.lemmas[c], rng) for c in chosen]
        asked = rng.integers(0, len(self.nouns), nouns) if self.nouns else np.zeros(0, np.int64)
        noun_texts = [make.random((self.nouns[q][1],), rng) for q in asked]
        return Batch(
            images,
            label,
            chosen,
            self.rows(texts_of),
            asked,
            self.rows(noun_texts) if noun_texts else torch.zeros(0, 2, dtype=torch.int64),
            self.rows(self._styles(rng)),
            np.array(captioned, np.int64),
            self.rows(captions) if captions else torch.zeros(0, 2, dtype=torch.int64),
        )

    def _fresh(
        self, labels: npt.NDArray[np.int64], count: int, rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Choose the concepts to encode: labels of the batch, their hypernyms, a few others."""
        own = np.unique(labels[labels >= 0])
        rng.shuffle(own)
        above = np.flatnonzero(self.concepts.positive[own].any(axis=0))
        above = above[self.weight[above] >= 1.0]
        rng.shuffle(above)
        other = rng.integers(0, len(self.concepts.offsets), count)
        order = np.concatenate([own[: count * 5 // 8], above[: count * 5 // 16], other])
        _, first = np.unique(order, return_index=True)
        return order[np.sort(first)][:count]

    def _styles(self, rng: np.random.Generator) -> list[list[int]]:
        """Return one caption per style: "a sketch", or all four with the same thing in them."""
        lemma = self.concepts.lemmas[int(rng.integers(len(self.concepts.lemmas)))][0]
        ending = " of a {}" if rng.random() < 0.5 else ""
        out = []
        for style in STYLES:
            names = STYLE_NAMES[style]
            name = names[int(rng.integers(len(names)))]
            out.append(self.captioner.compose(name + ending, lemma if ending else ""))
        return out
