"""Text towers of every kind against open_clip's own `encode_text`, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.hooked_text import blocks_of, embedding_of
from fednode.clip.text import TextTower
from fednode.errors import ModelError
from tests.unit.clip import tiny, twins

NAMES = ("cat", "golden retriever", "palm trees", "Boeing 747-400")


def theirs(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    with torch.no_grad():
        found = model.encode_text(tokenizer(texts, context_length=twins.READ))
    return F.normalize(found[0] if isinstance(found, tuple) else found, dim=-1)


def test_hand_written_texts_equal_open_clip(twin: Any) -> None:
    _, model, tokenizer, tower = twin
    ours = tower.encode(tower.texts(NAMES, "a photo of a {}."))
    wanted = theirs(model, tokenizer, [f"a photo of a {name}." for name in NAMES])
    assert (ours - wanted).abs().max() < 1e-5
    assert (wanted[0] - wanted[1]).abs().max() > 1e-3  # names matter


@pytest.mark.parametrize("words", ["a photo of a", "X"])
def test_a_context_of_the_words_embeddings_gives_the_words_features(twin: Any, words: str) -> None:
    _, model, tokenizer, tower = twin
    context = tower.embed_words(words)
    ours = tower.encode(tower.tokens(NAMES, len(context)), context)
    wanted = theirs(model, tokenizer, [f"{words} {name}." for name in NAMES])
    assert (ours - wanted).abs().max() < 1e-5


def test_words_between_context_and_name_equal_open_clip(twin: Any) -> None:
    _, model, tokenizer, tower = twin
    context = tower.embed_words("a photo of")
    said = ("art painting", "sketch")
    found = tower.encode(tower.tokens(NAMES, len(context), said), context.expand(2, -1, -1))
    for at, words in enumerate(said):
        wanted = theirs(model, tokenizer, [f"a photo of {words} {name}." for name in NAMES])
        assert (found[at] - wanted).abs().max() < 1e-5


def test_gradients_equal_autograd_through_open_clip(twin: Any) -> None:
    _, model, tokenizer, tower = twin
    draw = torch.Generator().manual_seed(1)
    start = tower.embed_words("a photo of a")
    context = (start + 0.1 * torch.randn(start.shape, generator=draw)).requires_grad_()
    deep = (0.1 * torch.randn(2, *start.shape, generator=draw)).requires_grad_()
    weights = torch.randn(len(NAMES), tiny.EMBED, generator=draw)
    ours = tower.encode(tower.tokens(NAMES, len(start)), context, deep)
    found = torch.autograd.grad((ours * weights).sum(), (context, deep))
    reference = _by_hooks(model, tokenizer, tower, context, deep)
    wanted = torch.autograd.grad((reference * weights).sum(), (context, deep))
    assert (ours - reference).abs().max() < 1e-5
    for mine, other in zip(found, wanted, strict=True):
        assert other.abs().max() > 0
        assert (mine - other).abs().max() < 1e-4 * other.abs().max()


def _by_hooks(model: Any, tokenizer: Any, tower: TextTower, context: Tensor, deep: Tensor) -> Any:
    """Encode whole sentences by open_clip; overwrite rows where "a photo of a" stands."""
    inner = getattr(model, "text", model)
    begin = len(tower._tokenizer.begin)
    rows = slice(begin, begin + len(context))

    def overwritten(x: Tensor, new: Tensor) -> Tensor:
        x = x.clone()
        x[:, rows] = new
        return x

    handles = [
        embedding_of(inner).register_forward_hook(lambda _, __, out: overwritten(out, context))
    ]
    for block, new in zip(blocks_of(inner)[1:], deep, strict=True):
        handles.append(
            block.register_forward_pre_hook(
                lambda _, words, new=new: (overwritten(words[0], new), *words[1:])
            )
        )
    texts = [f"a photo of a {name}." for name in NAMES]
    found = model.encode_text(tokenizer(texts, context_length=twins.READ))
    for handle in handles:
        handle.remove()
    return F.normalize(found[0] if isinstance(found, tuple) else found, dim=-1)


def test_several_prompts_at_once_are_each_alone(twin: Any) -> None:
    _, _, _, tower = twin
    names = tower.tokens(NAMES, 3)
    several = 0.1 * torch.randn(2, 3, tower.width, generator=torch.Generator().manual_seed(1))
    together = tower.encode(names, several)
    for one, features in zip(several, together, strict=True):
        assert (tower.encode(names, one) - features).abs().max() < 1e-5
    assert tower.encode(tower.tokens([], 3), several).shape == (2, 0, tiny.EMBED)


def test_no_hook_and_no_gradient_stays_behind(twin: Any) -> None:
    _, model, tokenizer, tower = twin
    before = theirs(model, tokenizer, ["a cat."])
    context = torch.zeros(2, tower.width, requires_grad=True)
    torch.autograd.backward(tower.encode(tower.tokens(NAMES, 2), context).sum())
    assert torch.equal(theirs(model, tokenizer, ["a cat."]), before)
    assert all(one.grad is None for one in model.parameters())
    with pytest.raises(ModelError, match="deep text prompts are"):
        tower.encode(tower.tokens(NAMES, 2), context, torch.zeros(3, 2, tower.width))


def test_a_name_too_long_is_named_with_the_limit(twin: Any) -> None:
    kind, _, _, tower = twin
    with pytest.raises(ModelError, match=r"with 2 context vectors \d+; .* reads 40"):
        tower.tokens(["cat", "a " * 60], 2)
    around = len(tower._tokenizer.begin) + len(tower._tokenizer.end)
    assert tower.tokens_left(2) + 2 + around == 39, kind


def test_bfloat16_is_near_float32(twin: Any) -> None:
    kind, model, tokenizer, tower = twin
    rough = TextTower(model, tokenizer, kind, torch.bfloat16)
    names, context = tower.tokens(NAMES, 2), torch.zeros(2, tower.width)
    found = rough.encode(names, context)
    assert found.dtype == torch.float32
    assert 0 < (found - tower.encode(names, context)).abs().max() < 0.1


def test_room_of_the_library_s_towers_follows_their_tokenizer(twin: Any) -> None:
    _, _, _, tower = twin
    assert tower.length_max == twins.READ
