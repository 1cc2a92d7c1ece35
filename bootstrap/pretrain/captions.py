"""Turn labels into captions: concepts, their synonyms and hypernyms, templates, token ids.

A concept is a synset that some image shows, or a hypernym of one ("dog" where the label says
"golden retriever"). Captions are composed from token lists, which is exact because the CLIP
tokenizer encodes word by word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bootstrap.pretrain.wordnet import ANIMAL, ARTIFACT, FOOD, OBJECT, PLANT, WordNet

SOT, EOT = 49406, 49407  # start and end of text in the CLIP vocabulary of 49408 tokens
CONTEXT = 77
CAPTION_TOKENS = 32  # real captions are cut here: nearly all are shorter

# Hypernyms too general to be a picture's name.
TOO_GENERAL = frozenset(
    {
        *("entity", "physical entity", "abstraction", "object", "whole", "matter", "thing"),
        *("living thing", "organism", "causal agent", "chordate", "vertebrate", "placental"),
        *("artifact", "instrumentality", "unit", "substance", "natural object", "part"),
        *("body part", "attribute", "relation", "group", "psychological feature"),
    }
)
STYLES = ("photo", "sketch", "cartoon", "painting")
STYLE_NAMES = {
    "photo": ("a photo", "a photograph", "a picture"),
    "sketch": ("a sketch", "a drawing", "a pencil drawing", "a line drawing"),
    "cartoon": ("a cartoon", "a comic", "an illustration"),
    "painting": ("a painting", "an art painting", "an artwork"),
}
# Plain templates come three times: they are what users of a zero-shot classifier write.
TEMPLATES = (
    *("a photo of a {}", "a photo of a {}.", "a photo of a {}.", "a {}", "{}", "a picture of a {}"),
    *("a photo of the {}.", "a close-up photo of a {}.", "a blurry photo of a {}."),
    *("a sketch of a {}", "a drawing of a {}.", "a cartoon of a {}.", "a painting of a {}."),
)

COMMON_TOKEN = 30000  # ids below this are the more frequent words: ids follow the merge order
NAMED_THINGS = frozenset({ANIMAL, ARTIFACT, FOOD, OBJECT, PLANT})

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Concepts:
    """The concepts of a set of labels, and how they contain each other.

    offsets    [C] synsets, sorted
    positive   [C, C] bool: the column is the row's concept itself or one of its hypernyms
    related    [C, C] bool: as above, or the column is a kind of the row's concept
    lemmas     for each concept its words
    """

    offsets: npt.NDArray[np.int64]
    positive: npt.NDArray[np.bool_]
    related: npt.NDArray[np.bool_]
    lemmas: tuple[tuple[str, ...], ...]

    def index(self, offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the concept numbers of synset offsets; -1 stays -1, as does the unknown."""
        at = np.searchsorted(self.offsets, offsets).clip(0, len(self.offsets) - 1)
        return np.where(self.offsets[at] == offsets, at, -1)


def useful_ancestors(words: WordNet, offset: int) -> list[int]:
    """Return the synset and its hypernyms that could name a picture."""
    own, *above = words.ancestors(offset)
    return [
        own,
        *(a for a in above if words.pictured(a) and words.synsets[a].lemmas[0] not in TOO_GENERAL),
    ]


def build_concepts(words: WordNet, labels: Iterable[int]) -> Concepts:
    """Collect the concepts of the labels (synset offsets) that occur in the data."""
    offsets = np.unique([a for label in labels for a in useful_ancestors(words, label)])
    at = {int(offset): i for i, offset in enumerate(offsets)}
    positive = np.zeros((len(offsets), len(offsets)), np.bool_)
    for offset, row in at.items():
        positive[row, [at[a] for a in useful_ancestors(words, offset) if a in at]] = True
    lemmas = tuple(names(words, int(offset)) for offset in offsets)
    return Concepts(offsets.astype(np.int64), positive, positive | positive.T, lemmas)


def names(words: WordNet, offset: int) -> tuple[str, ...]:
    """Return the words of a synset for which it is a usual meaning; at least the first word.

    "man" also names a piece in chess: a word stays where the synset is among its first two
    pictured senses.
    """
    synset = words.synsets[offset]
    usual = [
        word
        for word in synset.lemmas
        if offset in [s for s in words.senses.get(word, ()) if words.pictured(s)][:2]
    ]
    return tuple(usual[:3]) or synset.lemmas[:1]


def common_nouns(words: WordNet, encode: Encode, concepts: Concepts) -> list[tuple[int, str]]:
    """Return (synset, word) of common pictured nouns that have a concept above them.

    A word counts as common when it is one of the earlier whole tokens of the CLIP vocabulary,
    which was built from captions of the web. They tie names that no image shows ("giraffe") to
    those that images do ("ungulate", "animal").
    """
    seen = set(concepts.offsets.tolist())
    found: list[tuple[int, str]] = []
    for word, senses in words.senses.items():
        first = next((s for s in senses[:2] if words.pictured(s)), None)
        if first is None or words.synsets[first].lexfile not in NAMED_THINGS:
            continue
        if not word.isalpha() or len(word) < 3 or len(encode(word)) > 1:
            continue
        if encode(word)[0] >= COMMON_TOKEN:
            continue
        if seen.intersection(useful_ancestors(words, first)):
            found.append((first, word))
    return found


class Captioner:
    """Compose captions as token ids."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._known: dict[str, list[int]] = {}

    def tokens(self, text: str) -> list[int]:
        """Return the token ids of a piece of text, remembered."""
        ids = self._known.get(text)
        if ids is None:
            ids = self._known[text] = self._encode(text)
        return ids

    def compose(self, template: str, name: str) -> list[int]:
        """Return start, the template filled with the name (a or an, as fits), and end."""
        if name[:1] in "aeiou":
            template = template.replace("a {}", "an {}")
        before, _, after = template.partition("{}")
        body = self.tokens(before.strip()) + self.tokens(name) + self.tokens(after.strip())
        return [SOT, *body, EOT]

    def caption(self, text: str) -> list[int]:
        """Return a real caption, cut to CAPTION_TOKENS."""
        return [SOT, *self._encode(text)[: CAPTION_TOKENS - 2], EOT]

    def random(self, lemmas: Sequence[str], rng: np.random.Generator) -> list[int]:
        """Return a caption with a random template; the first word comes most often."""
        pick = 0 if rng.random() < 0.6 else int(rng.integers(len(lemmas)))
        return self.compose(TEMPLATES[int(rng.integers(len(TEMPLATES)))], lemmas[pick])


def pad(texts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Return the texts as one array, padded with 0 and only as wide as the longest.

    Cutting the context is exact: the text tower is causal and reads its result at the end token.
    """
    out = np.zeros((len(texts), max(len(t) for t in texts)), np.int64)
    for row, text in zip(out, texts, strict=True):
        row[: len(text)] = text
    return out


def touched_tokens(captioner: Captioner, lemmas: Iterable[str]) -> npt.NDArray[np.int64]:
    """Return the sorted ids of every token that the generated captions can contain."""
    found = {SOT, EOT}
    pieces = [piece for template in TEMPLATES for piece in template.split("{}")]
    pieces += [name for names in STYLE_NAMES.values() for name in names]
    for text in (*pieces, "an", "of a", "of an", *lemmas):
        found.update(captioner.tokens(text.strip()))
    for template in TEMPLATES:
        found.update(captioner.compose(template, "apple"))
    return np.array(sorted(found), np.int64)
