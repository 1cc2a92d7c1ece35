"""Class names as tokens and as hand-written texts, worked out once for each list of names."""

from __future__ import annotations

import torch
from torch import Tensor

from node.clip.backbone import Backbone
from node.clip.text import ClassTokens


class ClassTexts:
    """Token ids and hand-written features never change, and there are few lists of names."""

    def __init__(self, backbone: Backbone) -> None:
        self._text = backbone.text
        self._tokens: dict[tuple[tuple[str, ...], int, str, str], ClassTokens] = {}
        self._written: dict[tuple[tuple[str, ...], str], Tensor] = {}

    def tokens(
        self, classes: tuple[str, ...], length: int, words: str = "", after: str = ""
    ) -> ClassTokens:
        """Return "words name after." of each class, with room for `length` context vectors."""
        key = (classes, length, words, after)
        if key not in self._tokens:
            self._tokens[key] = self._text.tokens(classes, length, words, after)
        return self._tokens[key]

    @torch.no_grad()
    def written(self, classes: tuple[str, ...], template: str) -> Tensor:
        """Return the unit features [classes, D] of a template with each name put in for {}."""
        key = (classes, template)
        if key not in self._written:
            self._written[key] = self._text.encode(self._text.texts(classes, template))
        return self._written[key]
