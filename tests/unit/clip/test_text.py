"""Text towers of every kind against open_clip's own `encode_text`, and their tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.transformer import ResidualAttentionBlock, Transformer
from torch import Tensor, nn

from fednode.clip import blocks, tokens
from fednode.clip.hooked_text import HookedTextEncoder, blocks_of, embedding_of
from fednode.clip.prefix_text import PrefixTextEncoder
from fednode.clip.text import TextTower
from fednode.errors import ModelError
from tests.unit.clip import tiny, twins

NAMES = ("cat", "golden retriever", "palm trees", "Boeing 747-400")
STRANGE = ("crème brûlée", "o'clock; (a) clock", "x" * 9)
"""Names of words that the twins' own vocabularies lack."""
MANY = tuple(f"{name} {number}" for name in (*NAMES, *STRANGE) for number in range(5))
FAST = {"CLIP", "MetaCLIP 2", "MetaCLIP 2 with mT5's tokenizer", *twins.VARIANTS} - {"qk norm"}
TOKENIZER = twins.byte_pairs_of(tiny.TEXT)
PLAIN = TextTower(tiny.clip(), TOKENIZER, "tiny")


@pytest.fixture(scope="module", params=[*twins.TEXT, *twins.VARIANTS])
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a kind, a model of it, open_clip's tokenizer for it, and the tower."""
    kind = request.param
    model, tokenizer = twins.twin(kind, tmp_path_factory.mktemp("tokenizer"))
    return kind, model, tokenizer, TextTower(model, tokenizer, kind)


def theirs(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    with torch.no_grad():
        found = model.encode_text(tokenizer(texts, context_length=twins.READ))
    return F.normalize(found[0] if isinstance(found, tuple) else found, dim=-1)


def test_hand_written_texts_equal_open_clip(twin: Any) -> None:
    """Causal towers take the fast path, and the others their own modules."""
    kind, model, tokenizer, tower = twin
    names = NAMES + STRANGE * (tokenizer.__class__ is TOKENIZER.__class__)
    ours = tower.encode(tower.texts(names, "a photo of a {}."))
    wanted = theirs(model, tokenizer, [f"a photo of a {name}." for name in names])
    assert (ours - wanted).abs().max() < 1e-5
    assert (wanted[0] - wanted[1]).abs().max() > 1e-3  # names matter
    assert type(tower._kind) is (PrefixTextEncoder if kind in FAST else HookedTextEncoder)
    assert (tower.layers, tower.length_max, tower.fault) == (3, twins.READ, "")


@pytest.mark.parametrize("words", ["X", "one two three four five six"])
def test_a_context_of_the_words_embeddings_gives_the_words_features(twin: Any, words: str) -> None:
    """With other words between the context and the name, too."""
    _, model, tokenizer, tower = twin
    context = tower.embed_words(words)
    said = ("", "art painting")
    names = tower.tokens(NAMES, len(context), said)
    found = tower.encode(names, context.expand(2, -1, -1))
    for ours, more in zip(found, ("", "art painting "), strict=True):
        wanted = theirs(model, tokenizer, [f"{words} {more}{name}." for name in NAMES])
        assert (ours - wanted).abs().max() < 1e-5


def test_gradients_equal_autograd_through_open_clip(twin: Any) -> None:
    _, model, tokenizer, tower = twin
    draw = torch.Generator().manual_seed(1)
    start = tower.embed_words("a photo of a")
    context = (start + 0.1 * torch.randn(start.shape, generator=draw)).requires_grad_()
    deep = (0.1 * torch.randn(2, *start.shape, generator=draw)).requires_grad_()
    ours = tower.encode(tower.tokens(NAMES, len(start)), context, deep)
    weights = torch.randn(ours.shape, generator=draw)
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


def test_no_hook_and_no_gradient_stays_behind(twin: Any) -> None:
    _, model, tokenizer, tower = twin
    before = theirs(model, tokenizer, ["a cat."])
    context = torch.zeros(2, tower.width, requires_grad=True)
    torch.autograd.backward(tower.encode(tower.tokens(NAMES, 2), context).sum())
    assert torch.equal(theirs(model, tokenizer, ["a cat."]), before)
    assert all(one.grad is None for one in model.parameters())
    for shape in ((3, 2, tower.width), (1, 3, tower.width)):
        with pytest.raises(ModelError, match=r"deep text prompts are .* at most \[2, 1, 2, 32\]"):
            tower.encode(tower.tokens(NAMES, 2), context, torch.zeros(shape))


def test_a_name_too_long_is_named_with_the_limit(twin: Any) -> None:
    _, _, _, tower = twin
    with pytest.raises(ModelError, match=r"with 2 context vectors \d+; .* reads 40"):
        tower.tokens(["cat", "a " * 60], 2)


def test_bfloat16_is_near_float32(twin: Any) -> None:
    kind, model, tokenizer, tower = twin
    rough = TextTower(model, tokenizer, kind, torch.bfloat16)
    names, context = tower.tokens(NAMES, 2), torch.zeros(2, tower.width)
    found = rough.encode(names, context)
    assert found.dtype == torch.float32
    assert 0 < (found - tower.encode(names, context)).abs().max() < 0.1


@pytest.mark.parametrize("names", [NAMES, MANY], ids=["one group", "several groups"])
def test_each_prompt_may_have_words_of_its_own_length(twin: Any, names: tuple[str, ...]) -> None:
    """All at once equal each alone, forward and backward (DiPrompT's domains)."""
    kind, _, _, tower = twin
    names = names if kind in FAST else names[:6]  # only the fast path forms groups
    words = ("", "sketch", "a very old art painting")
    nothing = tower.encode(tower.tokens([], 2), torch.zeros(3, 2, tower.width))
    assert nothing.shape[:2] == (3, 0)
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


def test_everything_lies_on_the_models_device() -> None:
    """torch's meta device computes shapes only, and refuses to mix devices."""
    tower = TextTower(tiny.clip().to("meta"), TOKENIZER, "tiny")
    context = torch.zeros(3, 2, tower.width, device="meta", requires_grad=True)
    deep = torch.zeros(1, 3, 2, tower.width, device="meta")
    out = tower.encode(tower.tokens(NAMES, 2, ("art", "art painting", "")), context, deep)
    assert (out.shape, out.device.type) == ((3, len(NAMES), tiny.EMBED), "meta")


def test_no_context_vector_at_all_is_the_plain_name() -> None:
    tokens = PLAIN.tokens(NAMES)
    bare = PLAIN.encode(tokens, torch.zeros(0, PLAIN.width))
    assert (bare - PLAIN.encode(tokens)).abs().max() < 1e-6


def test_a_name_with_the_end_token_in_it_is_read_to_its_own_end() -> None:
    tokens = PLAIN.tokens(["end <end_of_text> marker", "end"])
    (longer, both) = tokens.endings.ends[0].tolist()
    assert longer > both - longer - 1


CLIP = tiny.clip()
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "first": (tiny.custom(pool_type="first"), TOKENIZER, "reads the first token, which sees no o"),
    "none": (tiny.custom(pool_type="none"), TOKENIZER, "a feature for each token"),
    "another end": (
        tiny.custom(pool_type="eos", eos_id=7),
        TOKENIZER,
        "reads the token 7, which is not the text's end",
    ),
    "tower": (torch.nn.Linear(2, 2), TOKENIZER, r"its text tower \(Linear\) has no embedding of t"),
    "tokenizer": (CLIP, object(), r"its tokenizer \(object\) is of no kind that fednode knows"),
    "no tokenizer": (CLIP, None, "its tokenizer is gone"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_tower_that_encodes_no_text_says_why(kind: str) -> None:
    model, tokenizer, reason = REFUSED[kind]
    tower = TextTower(
        model, tokenizer, "other", missing="" if tokenizer else "its tokenizer is gone"
    )
    for ask in (
        lambda: tower.width,
        lambda: tower.layers,
        lambda: tower.tokens(NAMES, 2),
        lambda: tower.texts(NAMES, "{}"),
        lambda: tower.embed_words("a"),
    ):
        with pytest.raises(ModelError, match=rf"^other encodes no text: .*{reason}.*; choose ano"):
            ask()


# Tokenizers ---------------------------------------------------------------------------------------


def test_what_stands_around_a_text_is_asked_of_the_tokenizer(twin: Any) -> None:
    _, _, theirs, _ = twin
    ours = tokens.tokenizer_of(theirs)
    for text in ("a photo of a cat.", "golden retriever", ""):
        (row,) = theirs([text], context_length=twins.READ).tolist()
        wanted = [*ours.begin, *ours.encode(text), *ours.end]
        assert row == wanted + [ours.pad] * (len(row) - len(wanted))


def test_words_behind_others_have_the_ids_that_they_have_in_the_text(twin: Any) -> None:
    ours = tokens.tokenizer_of(twin[2])
    whole = ours.encode("a photo of a golden retriever.")
    assert ours.encode("a photo of") + ours.encode_continuation("a golden retriever.") == whole
    assert ours.encode_continuation("") == []
    assert ours.decode(ours.encode("golden")).replace(" ", "") == "golden"


def test_a_fingerprint_covers_a_tokenizer_of_the_models_own(twin: Any, tmp_path: Path) -> None:
    kind, _, tokenizer, _ = twin
    own = hasattr(tokenizer, "tokenizer")
    assert bool(tokens.identity_of(tokenizer)) == own
    if own:
        again = twins.TEXT[kind][0](tmp_path)
        assert tokens.identity_of(again) == tokens.identity_of(tokenizer)
        again.tokenizer.add_tokens(["gerenuk"])
        assert tokens.identity_of(again) != tokens.identity_of(tokenizer)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("tokenizer.padding_side", "left", "does not fill texts up at their end"),
        ("tokenizer.pad_token", None, "does not fill texts up at their end"),
        ("tokenizer_mode", "clips", "works in the mode 'clips'"),
    ],
)
def test_tokenizers_that_put_texts_together_in_other_ways_are_refused(
    name: str, value: Any, reason: str, tmp_path: Path
) -> None:
    theirs = twins.xlm(tmp_path)
    inner, _, key = name.rpartition(".")
    setattr(theirs.tokenizer if inner else theirs, key, value)
    with pytest.raises(ModelError, match=reason):
        tokens.tokenizer_of(theirs)
    assert tokens.identity_of(theirs) == ""


# Blocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_bfloat16_attention_is_near_that_of_torch(masked: bool) -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 3, 6, 8, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.zeros(2, 1, 6, 6)
    if masked:
        mask[1, 0, :, 4:] = -torch.inf
    exact = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
    rows = blocks.attend(q, k, v, mask.bfloat16())
    ours: Tensor = rows.view(2, 6, 3, 8).transpose(1, 2)
    assert ours.dtype == torch.bfloat16
    assert (ours.float() - exact).abs().max() < 0.02 * exact.abs().max()


def test_weights_are_not_copied_in_their_own_precision() -> None:
    transformer = Transformer(width=16, layers=1, heads=2).requires_grad_(False)
    theirs: Any = transformer.resblocks[0]
    (ours,) = blocks.blocks_of(transformer, torch.float32)
    assert ours._up[0].data_ptr() == theirs.mlp.c_fc.weight.data_ptr()
    assert ours._in[0].data_ptr() == theirs.attn.in_proj_weight.data_ptr()


def test_other_blocks_are_left_to_the_transformer_itself() -> None:
    plain = Transformer(width=16, layers=2, heads=2)
    assert len(blocks.blocks_of(plain, torch.float32)) == 2
    assert not blocks.blocks_of(
        Transformer(width=16, layers=2, heads=2, qk_norm=True), torch.float32
    )
    assert not blocks.blocks_of(
        Transformer(width=16, layers=2, heads=2, act_layer=nn.ReLU), torch.float32
    )
    assert not blocks.blocks_of(nn.Linear(2, 2), torch.float32)
    crossed = Transformer(width=16, layers=1, heads=2)
    crossed.resblocks[0] = ResidualAttentionBlock(16, 2, is_cross_attention=True)
    assert not blocks.blocks_of(crossed, torch.float32)
    plain.resblocks[1].attn = nn.MultiheadAttention(16, 2, add_bias_kv=True)
    assert not blocks.blocks_of(plain, torch.float32)
