"""Tiny random models of every kind of text tower, with tokenizers that are made here.

A twin has a kind's structure (mask, pooling, blocks, tokenizer) and hardly any arithmetic.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch
from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

from fednode.clip.load import TEXT_SIZES, text_sizes
from tests.unit.clip import tiny

READ: Final = 40
SENTENCES: Final = (
    "a photo of a cat.",
    "a photo of a golden retriever",
    "an art painting of palm trees!",
    "sketch of a Boeing 747-400 aircraft",
    "chest x-ray with pleural effusion, one two three four five six",
    "X X X X saxophone o'clock; (a) clock",
)
WORDS: Final = tuple(sorted({one for text in SENTENCES for one in re.findall(r"\w+", text)}))
LETTERS: Final = tuple(map(chr, range(33, 127)))
HEADS: Final = {"num_attention_heads": 2}
ENCODER: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    **HEADS,
}
FROM_HUB: Final[dict[str, dict[str, Any]]] = {
    "bert": {"model_type": "bert", **ENCODER},
    **{
        kind: {"model_type": kind, **ENCODER, "pad_token_id": 1, "type_vocab_size": 1}
        for kind in ("roberta", "xlm-roberta")
    },
    "mt5": {
        "model_type": "mt5",
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 48,
        "num_layers": 3,
        "num_heads": 2,
        "feed_forward_proj": "gated-gelu",
        "pad_token_id": 0,
        "eos_token_id": 1,
    },
    "nllb": {
        "model_type": "m2m_100",
        "d_model": 32,
        "encoder_layers": 3,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
    },
}
POOLERS: Final = {"bert": "cls_last_hidden_state_pooler", "nllb": "cls_pooler"}


def word_pieces(folder: Path, **options: Any) -> HFTokenizer:
    """Return a tokenizer of BERT's kind: [CLS], word pieces, [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    signs = [*LETTERS, *(f"##{one}" for one in LETTERS)]
    known = dict.fromkeys([*special, *signs, *(one.lower() for one in WORDS)])
    vocabulary = {one: at for at, one in enumerate(known)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _saved(made, names, folder, **options)


def byte_level(folder: Path) -> HFTokenizer:
    """Return a tokenizer of RoBERTa's kind: a space before a word is a part of its token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(SENTENCES, trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return _saved(made, names, folder)


def pieces(
    folder: Path, special: list[str], template: str, pad: str, **options: Any
) -> HFTokenizer:
    """Return a tokenizer of SentencePiece's kind, which puts what `template` says around a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    known = dict.fromkeys([*special, "\u2581", *(f"\u2581{one}" for one in WORDS), *LETTERS])
    scores = [(one, -1.0 if len(one) > 1 else -9.0) for one in known]
    made = Tokenizer(models.Unigram(scores, unk_id=special.index("<unk>")))
    made.add_special_tokens(special)
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    used = [(one, made.token_to_id(one)) for one in template.split() if one != "$A"]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    return _saved(
        made, {"pad_token": pad, "unk_token": "<unk>", "eos_token": "</s>"}, folder, **options
    )


def _saved(made: Any, names: dict[str, str], folder: Path, **options: Any) -> HFTokenizer:
    transformers: Any = importlib.import_module("transformers")
    kind = transformers.PreTrainedTokenizerFast
    kind(tokenizer_object=made, **names).save_pretrained(str(folder))
    return HFTokenizer(str(folder), context_length=READ, **options)


def xlm(folder: Path) -> HFTokenizer:
    return pieces(folder, ["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>", "<pad>")


def t5(folder: Path, **options: Any) -> HFTokenizer:
    return pieces(folder, ["<pad>", "</s>", "<unk>"], "$A </s>", "<pad>", **options)


def siglip(folder: Path) -> HFTokenizer:
    """Pads with the token of the end."""
    special = ["<unk>", "</s>"]
    return pieces(folder, special, "$A </s>", "</s>", clean="canonicalize")


def nllb(folder: Path) -> HFTokenizer:
    special = ["<s>", "<pad>", "</s>", "<unk>", "eng_Latn"]
    return pieces(folder, special, "eng_Latn $A </s>", "<pad>")


def clipa(folder: Path) -> HFTokenizer:
    return word_pieces(folder, strip_sep_token=True)


@cache
def clip_tokenizer(length: int) -> SimpleTokenizer:
    """Return CLIP's tokenizer; reading its table takes tenths of a second."""
    return SimpleTokenizer(context_length=length)


def byte_pairs(_: Path) -> SimpleTokenizer:
    return clip_tokenizer(READ)


def byte_pairs_of(text: dict[str, Any]) -> SimpleTokenizer:
    """Return CLIP's tokenizer for a text tower of this configuration."""
    return clip_tokenizer(text["context_length"])


def _text(tokenizer: Any, **changes: Any) -> dict[str, Any]:
    inner = getattr(tokenizer, "tokenizer", None)
    vocabulary = tiny.TEXT["vocab_size"] if inner is None else len(inner)
    return {**tiny.TEXT, "context_length": READ, "layers": 3, "vocab_size": vocabulary, **changes}


def _own(tokenizer: Any, **changes: Any) -> CustomTextCLIP:
    return CustomTextCLIP(tiny.EMBED, dict(tiny.VISION), _text(tokenizer, **changes))


def _joined(tokenizer: Any, **changes: Any) -> CLIP:
    return CLIP(tiny.EMBED, dict(tiny.VISION), _text(tokenizer, **changes))


def _coca(tokenizer: Any) -> CoCa:
    text = _text(tokenizer, embed_cls=True, output_tokens=True)
    pooled = {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
    vision = {**tiny.VISION, **pooled}
    decoder = {"context_length": READ, "vocab_size": 100, "width": 32, "heads": 2, "layers": 1}
    return CoCa(tiny.EMBED, decoder, text, vision)


def _from_hub(kind: str) -> Callable[[Any], CustomTextCLIP]:
    def make(tokenizer: Any) -> CustomTextCLIP:
        inner = tokenizer.tokenizer
        known = {**FROM_HUB[kind], "vocab_size": len(inner), "pad_token_id": inner.pad_token_id}
        text = {
            "hf_model_name": kind,
            "hf_model_pretrained": False,
            "hf_pooler_type": POOLERS.get(kind, "mean_pooler"),
            "hf_proj_type": "mlp",
        }
        with given(kind, known):
            return CustomTextCLIP(tiny.EMBED, dict(tiny.VISION), text)

    return make


@contextmanager
def given(name: str, known: dict[str, Any]) -> Iterator[None]:
    """Let fednode's table of sizes hold a twin's, until the block ends."""
    with mock.patch.dict(TEXT_SIZES, {name: known}), text_sizes({"hf_model_name": name}):
        yield


_OPEN: Final = {"no_causal_mask": True}
Twin = tuple[Callable[[Path], Any], Callable[[Any], Any]]
TEXT: Final[dict[str, Twin]] = {
    "CLIP": (byte_pairs, lambda one: _joined(one)),
    "MetaCLIP 2": (xlm, lambda one: _joined(one, pool_type="eos", eos_id=2)),
    "MetaCLIP 2 with mT5's tokenizer": (t5, lambda one: _joined(one, pool_type="eos", eos_id=1)),
    "CLIPA": (clipa, lambda one: _joined(one, pool_type="last", **_OPEN)),
    "SigLIP": (siglip, lambda one: _own(one, pool_type="last", **_OPEN, proj_bias=True)),
    "MobileCLIP-S": (byte_pairs, lambda one: _own(one, **_OPEN)),
    "CoCa": (byte_pairs, _coca),
    "BERT": (word_pieces, _from_hub("bert")),
    "RoBERTa": (byte_level, _from_hub("roberta")),
    "XLM-R": (xlm, _from_hub("xlm-roberta")),
    "mT5": (t5, _from_hub("mt5")),
    "NLLB": (nllb, _from_hub("nllb")),
}
"""A tokenizer and a model for each kind of text tower."""
VARIANTS: Final[dict[str, Twin]] = {
    "end token by id": (byte_pairs, lambda one: _joined(one, pool_type="eos", eos_id=49407)),
    "linear projection": (byte_pairs, lambda one: _joined(one, proj_bias=True)),
    "no projection": (byte_pairs, lambda one: _joined(one, proj_type="none")),
    "qk norm": (byte_pairs, lambda one: _joined(one, qk_norm=True)),
    "tower of its own": (byte_pairs, lambda one: _own(one)),
}
"""Variants of CLIP's own kind."""


def twin(kind: str, folder: Path, seed: int = 0) -> tuple[Any, Any]:
    """Return a model of a kind and open_clip's tokenizer for it."""
    tokenizer_of, make = {**TEXT, **VARIANTS}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about their own calls
        tokenizer = tokenizer_of(folder)
        torch.manual_seed(seed)
        model = make(tokenizer).float().eval().requires_grad_(False)
    return model, tokenizer
