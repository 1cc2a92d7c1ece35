"""Class names as tokens, computed once for each list of names, and as hand-written texts, computed
once for each name: lists of peers' names differ a little at each merge."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fednode.lazy import Tensor, torch

if TYPE_CHECKING:
    from fednode.clip.model import FrozenClip

LISTS_MOST: Final = 64
"""Lists of names whose tokens are kept; Fed-DPT has a list for the classes of each batch."""
NAMES_MOST: Final = 8192
"""Hand-written texts whose features are kept: a state has at most 4,096 class names."""
NAMES_AT_ONCE: Final = 16
"""So many names go through the text tower at once: each takes memory there."""

SAME: Final = 0.9999
"""Cosine from which two texts are one and the same for a model."""


def indistinguishable_pairs(texts: Tensor, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the pairs of class names whose unit text features [classes, D] are the same."""
    pairs = []
    for at, name in enumerate(classes[:-1]):
        near = (texts[at + 1 :] @ texts[at] > SAME).nonzero().flatten().tolist()
        pairs += [(name, classes[at + 1 + other]) for other in near]
    return pairs


class ClassTexts:
    """Compute token ids and hand-written text features, and keep those of recent lists.

    tokens: TextTower.tokens, kept for recent lists of names.
    """

    def __init__(self, backbone: FrozenClip) -> None:
        self._text = backbone.text
        self.tokens = lru_cache(LISTS_MOST)(backbone.text.tokens)
        self._features: dict[tuple[str, str], Tensor] = {}

    def written(self, classes: tuple[str, ...], template: str) -> Tensor:
        """Return the unit features [classes, D] of a template whose {} is each class's name.

        A feature's last bits depend on which names went through the text tower with it.
        """
        if not classes:
            return self._encode((), template)
        keys = [(template, name) for name in classes]
        names = dict.fromkeys(classes)
        missing = [name for name in names if (template, name) not in self._features]
        for at in range(0, len(missing), NAMES_AT_ONCE):
            some = tuple(missing[at : at + NAMES_AT_ONCE])
            features = self._encode(some, template)
            self._features.update(zip(((template, name) for name in some), features, strict=True))
        found = torch.stack([self._features[key] for key in keys])
        while len(self._features) > NAMES_MOST:
            del self._features[next(iter(self._features))]
        return found

    def _encode(self, names: tuple[str, ...], template: str) -> Tensor:
        with torch.no_grad():
            return self._text.encode(self._text.texts(names, template))
