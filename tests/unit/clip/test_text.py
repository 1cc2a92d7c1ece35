"""The prompts' forward pass against open_clip's own text encoder."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor

from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.clip.text import TextTower
from fednode.errors import ModelError
from tests.unit.clip import tiny

TOKENIZER = SimpleTokenizer(context_length=24)
NAMES = ("cat", "golden retriever", "Boeing 747-400", "crème brûlée", "o'clock; (a) clock", "x" * 9)
MANY = tuple(f"{name} {number}" for name in NAMES for number in range(5))
MODELS = {
    "plain": lambda: tiny.clip(),
    "end token by id": lambda: tiny.clip(pool_type="eos", eos_id=TOKENIZER.eot_token_id),
    "linear projection": lambda: tiny.clip(proj_bias=True),
    "no projection": lambda: tiny.clip(proj_type="none"),
    "blocks of another kind": lambda: tiny.clip(qk_norm=True),
    "tower of its own": lambda: tiny.custom(),
    "fednode-mini": lambda: clip.load(ModelSettings()).model,
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


def tokenizer_of(model: Any) -> SimpleTokenizer:
    return SimpleTokenizer(context_length=getattr(model, "text", model).context_length)


def theirs(model: Any, texts: list[str]) -> Tensor:
    with torch.no_grad():
        features = model.encode_text(tokenizer_of(model)(texts))
    return torch.nn.functional.normalize(features, dim=-1)


def test_plain_text_equals_open_clip(model: Any) -> None:
    tower = TextTower(model, TOKENIZER, "tiny")
    ours = tower.encode(tower.texts(NAMES, "a photo of a {}."))
    wanted = theirs(model, [f"a photo of a {name}." for name in NAMES])
    assert (ours - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("words", ["X", "X X X X", "a photo of a", "one two three four five six"])
def test_context_that_spells_words_equals_open_clip(model: Any, words: str) -> None:
    tower = TextTower(model, TOKENIZER, "tiny")
    context = tower.embed_words(words)
    ours = tower.encode(tower.tokens(NAMES, len(context)), context)
    wanted = theirs(model, [f"{words} {name}." for name in NAMES])
    assert (ours - wanted).abs().max() < 1e-5


def test_gradient_equals_that_of_all_77_tokens_in_float64() -> None:
    model = tiny.clip()
    tower = TextTower(model, TOKENIZER, "tiny")
    generator = torch.Generator().manual_seed(3)
    context = torch.randn(4, tower.width, generator=generator)
    weights = torch.randn(len(NAMES), tiny.EMBED, generator=generator)

    ours = context.clone().requires_grad_()
    torch.autograd.backward((tower.encode(tower.tokens(NAMES, 4), ours) * weights).sum())

    exact = context.double().requires_grad_()
    torch.autograd.backward((_full_length(copy.deepcopy(model).double(), exact) * weights).sum())
    assert ours.grad is not None
    assert exact.grad is not None
    assert (ours.grad - exact.grad).abs().max() < 1e-5 * exact.grad.abs().max()


def _full_length(model: Any, context: Tensor) -> Tensor:
    """Encode as CoOp's code does: placeholders in the text, their embeddings overwritten."""
    count = len(context)
    ids = TOKENIZER([f"{'X ' * count}{name}." for name in NAMES])
    embedded = model.token_embedding(ids)
    prompted = torch.cat(
        [embedded[:, :1], context.expand(len(ids), -1, -1), embedded[:, 1 + count :]], dim=1
    )
    x = model.transformer(prompted + model.positional_embedding, attn_mask=model.attn_mask)
    x = model.ln_final(x)[torch.arange(len(ids)), ids.argmax(dim=-1)] @ model.text_projection
    return torch.nn.functional.normalize(x, dim=-1)


def test_context_gradient_against_finite_differences() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    tokens = tower.tokens(NAMES[:2], 2)
    generator = torch.Generator().manual_seed(5)
    context = torch.randn(2, tower.width, generator=generator).requires_grad_()
    direction = torch.randn(2, tower.width, generator=generator)
    value = tower.encode(tokens, context)[:, 0].sum()
    torch.autograd.backward(value)
    assert context.grad is not None
    step = 1e-2
    with torch.no_grad():
        up, down = (
            tower.encode(tokens, context + sign * step * direction)[:, 0].sum() for sign in (1, -1)
        )
    slope = (up - down) / (2 * step)
    assert slope == pytest.approx((context.grad * direction).sum().item(), rel=1e-2, abs=1e-4)


def test_several_prompts_at_once_are_each_alone(model: Any) -> None:
    tower = TextTower(model, TOKENIZER, "tiny")
    tokens = tower.tokens(NAMES, 3)
    several = torch.randn(4, 3, tower.width, generator=torch.Generator().manual_seed(1))
    together = tower.encode(tokens, several)
    for one, features in zip(several, together, strict=True):
        assert (tower.encode(tokens, one) - features).abs().max() < 1e-5


def test_words_stand_between_the_context_and_the_name(model: Any) -> None:
    tower = TextTower(model, TOKENIZER, "tiny")
    context = tower.embed_words("a photo of")
    found = tower.encode(tower.tokens(NAMES, len(context), ("art painting",)), context)
    wanted = theirs(model, [f"a photo of art painting {name}." for name in NAMES])
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("names", [NAMES, MANY], ids=["one group", "several groups"])
def test_each_prompt_may_have_words_of_its_own_length(model: Any, names: tuple[str, ...]) -> None:
    """All at once equal each alone, forward and backward (DiPrompT's domains)."""
    tower = TextTower(model, TOKENIZER, "tiny")
    words = ("", "sketch", "a very old art painting")
    draw = torch.Generator().manual_seed(1)
    several = torch.randn(3, 2, tower.width, generator=draw, requires_grad=True)
    together = tower.encode(tower.tokens(names, 2, words), several)
    weights = torch.randn(together.shape, generator=draw)
    (found,) = torch.autograd.grad((together * weights).sum(), several)
    for at, said in enumerate(words):
        alone = tower.encode(tower.tokens(names, 2, (said,)), several[at])
        (wanted,) = torch.autograd.grad((alone * weights[at]).sum(), several)
        assert (alone - together[at]).abs().max() < 1e-5
        assert (wanted[at] - found[at]).abs().max() < 1e-4 * wanted.abs().max()


def test_deep_prompts_that_do_not_fit_are_refused() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    tokens, context = tower.tokens(NAMES, 2), torch.zeros(2, tower.width)
    assert tower.encode(tokens, context, torch.zeros(1, 2, tower.width)).shape == (6, tiny.EMBED)
    for shape in ((2, 2, tower.width), (1, 3, tower.width)):
        with pytest.raises(ModelError, match=r"tiny takes at most \[1, 1, 2, 32\]"):
            tower.encode(tokens, context, torch.zeros(shape))


def test_everything_lies_on_the_models_device() -> None:
    """torch's meta device computes shapes only, and refuses to mix devices."""
    model = tiny.clip().to("meta")
    tower = TextTower(model, TOKENIZER, "tiny")
    context = torch.zeros(3, 2, tower.width, device="meta", requires_grad=True)
    deep = torch.zeros(1, 3, 2, tower.width, device="meta")
    out = tower.encode(tower.tokens(NAMES, 2, ("art", "art painting", "")), context, deep)
    assert out.shape == (3, len(NAMES), tiny.EMBED)
    assert out.device.type == "meta"


def test_no_class_at_all_has_no_features() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    assert tower.encode(tower.tokens([], 2), torch.zeros(2, tower.width)).shape == (0, tiny.EMBED)


def test_only_the_context_gets_a_gradient() -> None:
    model = tiny.clip()
    tower = TextTower(model, TOKENIZER, "tiny")
    context = torch.zeros(1, tower.width, requires_grad=True)
    torch.autograd.backward(tower.encode(tower.tokens(NAMES, 1), context).sum())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_other_class_names_do_not_change_a_class() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    context = tower.embed_words("a photo of a")
    alone = tower.encode(tower.tokens(["cat"], 4), context)
    among = tower.encode(tower.tokens(NAMES, 4), context)
    assert (alone[0] - among[0]).abs().max() < 1e-6


def test_no_context_vector_at_all_is_the_plain_name() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    tokens = tower.tokens(NAMES)
    bare = tower.encode(tokens, torch.zeros(0, tower.width))
    assert (bare - tower.encode(tokens)).abs().max() < 1e-6


def test_a_name_with_the_end_token_in_it_is_read_to_its_own_end() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    tokens = tower.tokens(["end <end_of_text> marker", "end"])
    (longer, both) = tokens.endings.ends[0].tolist()
    assert longer > both - longer - 1


def test_a_name_too_long_is_named_with_the_limit() -> None:
    tower = TextTower(tiny.clip(), TOKENIZER, "tiny")
    with pytest.raises(ModelError, match=r"takes 23 tokens, with 2 context vectors 25; tiny reads"):
        tower.tokens(["cat", "a " * 20], 2)


HALF: dict[str, tuple[Any, str]] = {
    "first": (lambda: tiny.custom(pool_type="first"), "reads the first token, which sees no other"),
    "none": (lambda: tiny.custom(pool_type="none"), "a feature for each token"),
    "another end": (
        lambda: tiny.custom(pool_type="eos", eos_id=7),
        "reads the token 7, which is not the text's end",
    ),
}


@pytest.mark.parametrize("kind", HALF)
def test_a_tower_that_takes_no_vectors_says_why_and_still_encodes_texts(kind: str) -> None:
    """A refused tower refuses no more than it must."""
    make, reason = HALF[kind]
    model = make()
    tower = TextTower(model, TOKENIZER, "other")
    assert reason in tower.fault
    for ask in (
        lambda: tower.width,
        lambda: tower.layers,
        lambda: tower.tokens(NAMES, 2),
        lambda: tower.embed_words("a"),
        lambda: tower.encode(tower.texts(NAMES, "{}"), torch.zeros(2, 32)),
    ):
        with pytest.raises(ModelError) as fault:
            ask()
        assert str(fault.value).startswith("other takes no learned text prompts: its text tower")
        assert "policy fedclip" in str(fault.value)
    if kind == "first":
        ours = tower.encode(tower.texts(NAMES, "a photo of a {}."))
        wanted = theirs(model, [f"a photo of a {name}." for name in NAMES])
        assert (ours - wanted).abs().max() < 1e-5
        assert tower.encode(tower.texts([], "{}")).shape == (0, tiny.EMBED)


def test_towers_and_tokenizers_of_unknown_kinds_are_named() -> None:
    strange: Any = torch.nn.Linear(2, 2)
    assert "(Linear) has no embedding of tokens" in TextTower(strange, TOKENIZER, "other").fault
    assert "its tokenizer (object)" in TextTower(tiny.clip(), object(), "other").fault


def test_without_a_tokenizer_no_text_is_encoded() -> None:
    tower = TextTower(tiny.clip(), None, "other", missing="its tokenizer is gone")
    with pytest.raises(ModelError, match=r"other encodes no text: its tokenizer is gone\.$"):
        tower.texts(NAMES, "{}")
    with pytest.raises(ModelError, match="no learned text prompts: its tokenizer is gone; hand-wr"):
        assert tower.width
