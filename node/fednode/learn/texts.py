"""Class names as tokens and as hand-written texts, computed once for each list of names."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import torch
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.clip.tokens import ClassTokens

LISTS_MOST: Final = 64
"""Lists of names whose results are kept; Fed-DPT has a list for the classes of each batch."""


SAME: Final = 0.9999
"""Cosine from which two texts are one and the same for a model."""


@torch.no_grad()
def alike(backbone: Backbone, classes: tuple[str, ...], template: str) -> list[tuple[str, str]]:
    """Return the pairs of class names whose texts a model does not tell apart.

    template: the text; {} is the name.
    """
    features = backbone.text.encode(backbone.text.texts(classes, template)).double()
    pairs = []
    for at, name in enumerate(classes[:-1]):
        near = (features[at + 1 :] @ features[at] > SAME).nonzero().flatten().tolist()
        pairs += [(name, classes[at + 1 + other]) for other in near]
    return pairs


class ClassTexts:
    """Compute token ids and hand-written text features, and keep those of recent lists."""

    def __init__(self, backbone: Backbone) -> None:
        self._text = backbone.text
        self._known: dict[Hashable, Any] = {}

    def tokens(
        self, classes: tuple[str, ...], length: int, words: tuple[str, ...] = ("",)
    ) -> ClassTokens:
        """Return the tokens of "words name." per class, behind `length` vectors.

        words: of each prompt, or of all prompts.
        """
        key = (classes, length, words)
        tokens: ClassTokens = self._kept(key, lambda: self._text.tokens(classes, length, words))
        return tokens

    @torch.no_grad()
    def written(self, classes: tuple[str, ...], template: str) -> Tensor:
        """Return the unit features [classes, D] of a template whose {} is each class's name."""
        features: Tensor = self._kept(
            (classes, template), lambda: self._text.encode(self._text.texts(classes, template))
        )
        return features

    def _kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result for a key; drop the result whose last use is longest ago."""
        value = self._known.pop(key, None)
        if value is None:
            value = make()
        self._known[key] = value
        if len(self._known) > LISTS_MOST:
            del self._known[next(iter(self._known))]
        return value
