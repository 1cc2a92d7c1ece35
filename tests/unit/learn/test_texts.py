"""Texts of class names are computed once for each list, and the kept lists are bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from fednode.clip.backbone import Backbone
from fednode.learn.texts import LISTS_MOST, ClassTexts


class Counting:
    """A text tower that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def tokens(self, *key: Any) -> Any:
        self.asked.append(key)
        return object()


def counting() -> tuple[Counting, ClassTexts]:
    tower = Counting()
    return tower, ClassTexts(SimpleNamespace(text=tower))  # type: ignore[arg-type]


def test_a_list_is_tokenized_once_for_each_length_and_each_words() -> None:
    tower, texts = counting()
    first = texts.tokens(("cat", "dog"), 4)
    assert texts.tokens(("cat", "dog"), 4) is first
    assert len(tower.asked) == 1
    for other in ((("dog", "cat"), 4), (("cat", "dog"), 5), (("cat", "dog"), 4, ("a",))):
        assert texts.tokens(*other) is not first
    assert len(tower.asked) == 4


def test_the_list_whose_last_use_is_longest_ago_goes_first() -> None:
    tower, texts = counting()
    for number in range(LISTS_MOST):
        texts.tokens((str(number),), 4)
    texts.tokens(("0",), 4)  # used again
    texts.tokens(("new",), 4)
    asked = len(tower.asked)
    texts.tokens(("0",), 4)
    assert len(tower.asked) == asked
    texts.tokens(("1",), 4)
    assert len(tower.asked) == asked + 1


def test_written_texts_are_the_tower_s_own_without_a_gradient(mini: Backbone) -> None:
    found = ClassTexts(mini).written(("cat", "dog"), "a sketch of a {}.")
    wanted = mini.text.encode(mini.text.texts(("cat", "dog"), "a sketch of a {}."))
    assert torch.equal(found, wanted)
    assert not found.requires_grad
    assert torch.allclose(found.norm(dim=1), torch.ones(2))
