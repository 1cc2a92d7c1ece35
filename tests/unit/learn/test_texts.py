"""Texts of class names are computed once, and what is kept of them is bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.learn.prompt_module import LISTS_MOST, NAMES_AT_ONCE, ClassTexts


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


def test_a_list_is_tokenized_once_until_its_last_use_is_longest_ago() -> None:
    tower, texts = counting()
    first = texts.tokens(("0",), 4)
    assert texts.tokens(("0",), 4) is first
    for other in ((("1",), 5), (("1", "0"), 4), (("0", "1"), 4), (("0", "1"), 4, ("a",))):
        assert texts.tokens(*other) is not first
    assert len(tower.asked) == 5
    for number in range(LISTS_MOST - 1):
        texts.tokens((f"more {number}",), 4)
        assert texts.tokens(("0",), 4) is first, "used again"
    asked = len(tower.asked)
    texts.tokens(("1",), 5)
    assert len(tower.asked) == asked + 1


def test_written_texts_are_the_tower_s_own_without_a_gradient(mini: FrozenClip) -> None:
    found = ClassTexts(mini).written(("cat", "dog"), "a sketch of a {}.")
    wanted = mini.text.encode(mini.text.texts(("cat", "dog"), "a sketch of a {}."))
    assert torch.equal(found, wanted)
    assert not found.requires_grad
    assert torch.allclose(found.norm(dim=1), torch.ones(2))


def test_a_name_goes_through_the_tower_once_whatever_list_it_stands_in(
    mini: FrozenClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"class {number}" for number in range(2 * NAMES_AT_ONCE + 3))
    whole = mini.text.encode(mini.text.texts(names, "a {}."))
    texts, sizes, real = ClassTexts(mini), list[int](), mini.text.encode

    def encode(tokens: Any, *more: Any) -> torch.Tensor:
        sizes.append(len(tokens.ids))
        return real(tokens, *more)

    monkeypatch.setattr(mini.text, "encode", encode)
    assert torch.allclose(texts.written(names[:5], "a {}."), whole[:5], atol=1e-6)
    assert torch.allclose(texts.written(names, "a {}."), whole, atol=1e-6)
    assert torch.allclose(texts.written(names[::-1], "a {}."), whole.flip(0), atol=1e-6)
    assert sum(sizes) == len(names)
    assert max(sizes) == NAMES_AT_ONCE
    assert texts.written((), "a {}.").shape == (0, whole.shape[1])
