"""Class names as tokens and as hand-written texts, worked out once for a list of names."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import torch
from torch import Tensor

from node.clip.backbone import Backbone
from node.clip.text import ClassTokens

LISTS_MOST: Final = 64
"""Lists of names that are kept; Fed-DPT has one for the classes of each batch."""


class ClassTexts:
    """Token ids and hand-written features never change; those of the last lists are kept."""

    def __init__(self, backbone: Backbone) -> None:
        self._text = backbone.text
        self._known: dict[Hashable, Any] = {}

    def tokens(
        self, classes: tuple[str, ...], length: int, words: str = "", after: str = ""
    ) -> ClassTokens:
        """Return "words name after." of each class, with room for `length` context vectors."""
        key = (classes, length, words, after)
        found: ClassTokens = self._kept(
            key, lambda: self._text.tokens(classes, length, words, after)
        )
        return found

    @torch.no_grad()
    def written(self, classes: tuple[str, ...], template: str) -> Tensor:
        """Return the unit features [classes, D] of a template with each name put in for {}."""
        found: Tensor = self._kept(
            (classes, template), lambda: self._text.encode(self._text.texts(classes, template))
        )
        return found

    def _kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made for a key, and forget the keys that were not asked for longest."""
        found = self._known.pop(key, None)
        if found is None:
            found = make()
        self._known[key] = found
        if len(self._known) > LISTS_MOST:
            del self._known[next(iter(self._known))]
        return found
