"""The frozen text tower with learned context vectors: [begin, context (m), class name, '.', end].

A tower is asked what it is: which tokens see which, where it reads the text, and of which blocks it
consists. A causal tower of CLIP's plain blocks goes through prefix_text.py, which is fast; any
other tower goes through its own modules (hooked_text.py). Both are exact. Words may stand between
context and name (DiPrompT's domain prompts). Prompts may be deep (PLAN).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fednode.clip import cuda_graphs
from fednode.clip.blocks import blocks_of
from fednode.clip.device import to_device
from fednode.clip.hooked_text import HookedTextEncoder, embedding_of
from fednode.clip.prefix_text import ClassTokens, PackedSuffixes, PrefixTextEncoder
from fednode.clip.tokens import Tokenizer, tokenizer_of
from fednode.errors import ModelError

TextEncoder = PrefixTextEncoder | HookedTextEncoder


class TextTower:
    """Encode class names behind learned context vectors, as open_clip encodes texts.

    Attributes:
        fault: why it encodes no text, as half a sentence; "" if it does
        missing: why there is no tokenizer, as half a sentence; "" if there is one
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        label: str,
        dtype: torch.dtype = torch.float32,
        missing: str = "",
    ) -> None:
        """Take the text modules of an open_clip model and open_clip's tokenizer.

        dtype: of matrix products; everything else is float32. missing: why there is no tokenizer.
        """
        self._model: Any = model
        self._label, self.missing, self.fault = label, missing, missing
        if missing:
            return
        try:
            self._tokenizer = tokenizer_of(tokenizer)
        except ModelError as fault:
            self.fault = str(fault)
            return
        self.fault = prompt_fault(model, self._tokenizer)
        if not self.fault:
            self._kind = _kind(model, self._tokenizer, dtype)

    @property
    def width(self) -> int:
        """Width of a context vector; raise ModelError if the tower takes none."""
        return int(self._embed([]).shape[-1])

    @property
    def layers(self) -> int:
        """Number of blocks, at most so many parts of deep prompts; 0: it takes none."""
        return len(self._need().blocks)

    @property
    def length_max(self) -> int:
        """Number of tokens that the tower reads."""
        return self._need().length_max

    def tokens(
        self, names: Sequence[str], context_length: int = 0, words: Sequence[str] = ("",)
    ) -> ClassTokens:
        """Tokenize "words name." for each name.

        words: of each prompt (DiPrompT's domains), or of all prompts. Raise ModelError if a text
        leaves no room for context_length vectors, or if the tower encodes no text.
        """
        return self._tokenize(names, [f"{name}." for name in names], context_length, words)

    def texts(self, names: Sequence[str], template: str) -> ClassTokens:
        """Tokenize a hand-written template with each name in place of {}."""
        return self._tokenize(names, [template.replace("{}", name) for name in names], 0, ("",))

    def _tokenize(
        self, names: Sequence[str], texts: list[str], context_length: int, words: Sequence[str]
    ) -> ClassTokens:
        self._need()
        tokenizer = self._tokenizer
        put = tokenizer.encode_continuation if context_length else tokenizer.encode
        before = list(map(put, words))
        longest = max(map(len, before))
        if longest:
            put = tokenizer.encode_continuation
        rows = [[*put(text), *tokenizer.end] for text in texts]
        for name, row in zip(names, rows, strict=True):
            taken = len(tokenizer.begin) + longest + len(row)
            if taken + context_length > self.length_max:
                raise ModelError(
                    f"the class name {name[:60]!r} takes {taken} tokens, with "
                    f"{context_length} context vectors {taken + context_length}; {self._label} "
                    f"reads {self.length_max}: shorten the name or lower tuning.context_length."
                )
        tokens = [torch.tensor(row, dtype=torch.long) for row in (*rows, *before)]
        endings, device = PackedSuffixes.of([len(row) for row in rows]), self._device
        own = tokens[: len(rows)] or [torch.tensor([tokenizer.pad])]
        ids = pad_sequence(own, batch_first=True, padding_value=tokenizer.pad)[: len(rows)]
        return ClassTokens(
            tuple(to_device(one, device) for one in tokens[len(rows) :]),
            to_device(ids, device),
            to_device(torch.cat(own)[endings.source], device),
            endings.to(device),
        )

    def embed_words(self, words: str) -> Tensor:
        """Return the token embeddings [n, width] of words, as initial context vectors."""
        self._need()
        return self._embed(self._tokenizer.encode(words))

    def vocabulary(self) -> tuple[list[int], Tensor]:
        """Return the ids of all words and their embeddings [n, width], in float32."""
        self._need()
        around = {*self._tokenizer.begin, *self._tokenizer.end}
        ids = [token for token in range(self._tokenizer.size) if token not in around]
        return ids, self._embed(ids).float()

    def decode(self, token: int) -> str:
        self._need()
        return self._tokenizer.decode([token]).strip()

    def encode(
        self, tokens: ClassTokens, context: Tensor | None = None, deep: Tensor | None = None
    ) -> Tensor:
        """Return unit text features [classes, D] in float32.

        Args:
            tokens: the texts
            context: learned vectors [m, width] behind the tower's first tokens, shared by all
                classes (ZeroDFL, CoOp); None for the plain text
            deep: [d, m, width], replace the context before blocks 1 to d (PLAN)

        N prompts at once, [N, m, width] and [d, N, m, width], give [N, classes, D] (Fed-DPT,
        DiPrompT). Gradients flow to context and deep alone. Raise ModelError if deep prompts do not
        fit, or if the tower encodes no text.
        """
        kind = self._need()
        if context is None:
            context = torch.zeros(0, self.width, device=self._device)
        several = context.dim() == 3
        contexts = context if several else context[None]
        if deep is not None:
            deep = self._fitting(kind, deep if several else deep[:, None], contexts)
        given = [contexts] if deep is None else [contexts, deep]

        def encode(*prompts: Tensor) -> tuple[Tensor]:
            return (kind.encode(tokens, *prompts),)

        (out,) = cuda_graphs.run((self, tokens), encode, given)
        encoded: Tensor = out if several else out[0]
        return encoded

    def _embed(self, ids: list[int]) -> Tensor:
        return self._need().embed(torch.tensor(ids, dtype=torch.long, device=self._device))

    def _fitting(self, kind: TextEncoder, deep: Tensor, contexts: Tensor) -> Tensor:
        if not kind.blocks:
            raise ModelError(f"{self._label} has text blocks of a kind that takes no deep prompts.")
        if len(deep) >= self.layers or deep.shape[1:] != contexts.shape:
            raise ModelError(
                f"deep text prompts are {list(deep.shape)}; {self._label} takes at most "
                f"[{self.layers - 1}, {', '.join(str(size) for size in contexts.shape)}]."
            )
        return deep

    def _need(self) -> TextEncoder:
        if self.fault:
            raise ModelError(
                f"{self._label} encodes no text: {self.fault}; choose another model, such as "
                "ViT-B-16."
            )
        return self._kind

    @property
    def _device(self) -> torch.device:
        device: torch.device = self._model.logit_scale.device
        return device


def prompt_fault(model: Any, tokenizer: Tokenizer | None) -> str:
    """Say why no text of class names can be encoded, as half a sentence; "" if it can.

    tokenizer: None if it cannot be had; then it is taken to be the tower's.
    """
    tower: Any = getattr(model, "text", model)
    if embedding_of(tower) is None:
        return f"its text tower ({type(tower).__name__}) has no embedding of tokens"
    if hasattr(tower, "config") or getattr(tower, "cls_emb", None) is not None:
        return ""
    pool = _pool(tower)
    if pool == "first" and tower.attn_mask is not None:
        return "its text tower reads the first token, which sees no other"
    if pool == "none":
        return "its text tower gives a feature for each token, not for a text"
    if tokenizer is None:
        return ""
    last = tokenizer.end[-1] if tokenizer.end else -1
    if pool == "argmax" and last != tokenizer.size - 1:
        return "its text tower reads the token with the highest id, which is not the text's end"
    end = int(getattr(tower, "text_eos_id", getattr(tower, "eos_id", -1)))
    if pool == "eos" and end not in tokenizer.end:
        return f"its text tower reads the token {end}, which is not the text's end"
    return ""


def _kind(model: Any, tokenizer: Tokenizer, dtype: torch.dtype) -> TextEncoder:
    """Return the fast path if the tower is causal, plain, and reads the end; else the exact one."""
    tower: Any = getattr(model, "text", model)
    causal = (
        getattr(tower, "attn_mask", None) is not None
        and getattr(tower, "cls_emb", None) is None
        and _pool(tower) in {"argmax", "eos"}
        and len(tokenizer.end) == 1
    )
    blocks = blocks_of(tower.transformer, dtype) if causal else []
    if blocks:
        return PrefixTextEncoder(tower, blocks, tokenizer)
    return HookedTextEncoder(model, tokenizer, dtype)


def _pool(tower: Any) -> str:
    return str(getattr(tower, "text_pool_type", getattr(tower, "pool_type", "")))
