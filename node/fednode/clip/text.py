"""The frozen text tower with learned context vectors: [SOS, context (m), class name, '.', EOT].

open_clip encodes every text at its full length of 77 tokens. The tower is causal, so tokens after
the end of a text cannot change the result, and the common beginning of all texts has the same
states for all. This module computes no token after an end, and computes [SOS] with the context once
(node/fednode/clip/prefix.py). Both are exact. Words may stand between context and name (DiPrompT's
domain prompts), and prompts may be deep (PLAN).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fednode.clip.blocks import blocks_of
from fednode.clip.prefix import Endings, last_states
from fednode.errors import ModelError


@dataclass(frozen=True, slots=True)
class ClassTokens:
    """Token ids of texts that begin with [SOS, context, words] and continue with a class name.

    Attributes:
        words: [w] for each prompt, or once for all prompts: ids between context and name
        ids: [classes, L], each text's own ids, 0 after the end
        ends: [classes], the place of EOT in `ids`
        packed: [G * R], own ids as `endings` groups them
    """

    names: tuple[str, ...]
    words: tuple[Tensor, ...]
    ids: Tensor
    ends: Tensor
    packed: Tensor
    endings: Endings


class TextTower:
    """Encode class names behind learned context vectors, as open_clip encodes texts."""

    def __init__(
        self, model: nn.Module, tokenizer: Any, label: str, dtype: torch.dtype = torch.float32
    ) -> None:
        """Take the text modules of an open_clip model; raise ModelError if the tower does not fit.

        dtype: of matrix products; everything else is float32.
        """
        tower: Any = getattr(model, "text", model)
        settings_fault = _unfit(tower, tokenizer)
        if settings_fault:
            raise ModelError(
                f"{label} cannot be prompted: {settings_fault}; choose a CLIP with a causal text "
                "transformer and the CLIP tokenizer, such as ViT-B-16."
            )
        self._tower = tower
        self._tokenizer: SimpleTokenizer = tokenizer
        self._label = label
        self._dtype = dtype
        self._blocks = blocks_of(tower.transformer, dtype)
        self.layers = len(tower.transformer.resblocks)
        self.width = int(tower.token_embedding.weight.shape[1])
        self.length_max = int(tower.positional_embedding.shape[0])

    def tokens(
        self, names: Sequence[str], context_length: int = 0, words: Sequence[str] = ("",)
    ) -> ClassTokens:
        """Tokenize "words name." for each name.

        words: of each prompt (DiPrompT's domains), or of all prompts. Raise ModelError if a text
        leaves no room for context_length vectors.
        """
        return self._tokenize(names, [f"{name}." for name in names], context_length, words)

    def texts(self, names: Sequence[str], template: str) -> ClassTokens:
        """Tokenize a hand-written template with each name in place of {}."""
        return self._tokenize(names, [template.replace("{}", name) for name in names], 0)

    def _tokenize(
        self, names: Sequence[str], texts: list[str], room: int, words: Sequence[str] = ("",)
    ) -> ClassTokens:
        tokenizer = self._tokenizer
        before = [tokenizer.encode(one) for one in words]
        longest = max(map(len, before))
        rows = [[*tokenizer.encode(text), tokenizer.eot_token_id] for text in texts]
        for name, row in zip(names, rows, strict=True):
            taken = 1 + longest + len(row)
            if taken + room > self.length_max:
                raise ModelError(
                    f"the class name {name[:60]!r} takes {taken} tokens, with {room} context "
                    f"vectors {taken + room}; {self._label} reads {self.length_max}: shorten "
                    "the name or lower tuning.context_length."
                )
        lengths = [len(row) for row in rows]
        endings = Endings.of(lengths)
        flat = torch.tensor([token for row in rows for token in row], dtype=torch.long)
        ids = torch.zeros(len(rows), max(lengths, default=1), dtype=torch.long)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
        return ClassTokens(
            tuple(names),
            tuple(torch.tensor(one, dtype=torch.long, device=self._device) for one in before),
            ids.to(self._device),
            torch.tensor(lengths, dtype=torch.long, device=self._device) - 1,
            flat[endings.source].to(self._device),
            endings.to(self._device),
        )

    def embed_words(self, words: str) -> Tensor:
        """Return the token embeddings [n, width] of words, as initial context vectors."""
        ids = torch.tensor(self._tokenizer.encode(words), dtype=torch.long, device=self._device)
        return self._embed(ids)

    def encode(
        self, tokens: ClassTokens, context: Tensor | None = None, deep: Tensor | None = None
    ) -> Tensor:
        """Return unit text features [classes, D] in float32.

        Args:
            tokens: the texts
            context: learned vectors [m, width] after SOS, shared by all classes (ZeroDFL, CoOp);
                None for
                the plain text
            deep: [d, m, width], replace the context before blocks 1 to d (PLAN)

        N prompts at once, [N, m, width] and [d, N, m, width], give [N, classes, D] (Fed-DPT,
        DiPrompT).
        Gradients flow to context and deep alone. Raise ModelError if deep prompts do not fit.
        """
        if context is None:
            context = self._tower.positional_embedding.new_zeros(0, self.width)
        several = context.dim() == 3
        contexts = context if several else context[None]
        if deep is not None:
            deep = self._fitting(deep if several else deep[:, None], contexts)
        out = self._encoded(tokens, contexts, deep)
        return out if several else out[0]

    def _fitting(self, deep: Tensor, contexts: Tensor) -> Tensor:
        if not self._blocks:
            raise ModelError(f"{self._label} has text blocks of a kind that takes no deep prompts.")
        if len(deep) >= self.layers or deep.shape[1:] != contexts.shape:
            raise ModelError(
                f"deep text prompts are {list(deep.shape)}; {self._label} takes at most "
                f"[{self.layers - 1}, {', '.join(str(size) for size in contexts.shape)}]."
            )
        return deep

    def _encoded(self, tokens: ClassTokens, contexts: Tensor, deep: Tensor | None) -> Tensor:
        tower, position = self._tower, self._tower.positional_embedding.detach()
        prefix, lengths = self._prefix(tokens, contexts)
        if not tokens.names:
            x = prefix.new_zeros(len(contexts), 0, self.width)
        elif self._blocks:
            own = self._embed(tokens.packed)
            endings = torch.stack([own + position[one + tokens.endings.offset] for one in lengths])
            x = last_states(self._blocks, prefix, endings, tokens.endings, deep, lengths)
        else:
            equal = [prefix] if len(lengths) == 1 else torch.split(prefix, 1)
            parts = zip(equal, lengths, strict=True)
            x = torch.cat([self._whole(tokens, part[:, :length]) for part, length in parts])
        return self._project(tower.ln_final(x))

    def _prefix(self, tokens: ClassTokens, contexts: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Return the embedded beginnings [N, P, width] and their lengths, one if all are equal.

        Shorter beginnings end with unused rows.
        """
        start = self._embed(torch.tensor([self._tokenizer.sot_token_id], device=self._device))
        words = [self._embed(one) for one in tokens.words]
        lengths = tuple(1 + contexts.shape[1] + len(one) for one in words)
        begin, longest = start.expand(len(contexts), -1, -1), max(lengths)
        behind = pad_sequence(words, batch_first=True).expand(len(contexts), -1, -1)
        prefix = torch.cat([begin, contexts.to(start.dtype), behind], dim=1)
        equal = len(set(lengths)) == 1
        position = self._tower.positional_embedding.detach()
        return prefix + position[:longest], lengths[:1] if equal else lengths

    def _whole(self, tokens: ClassTokens, prefix: Tensor) -> Tensor:
        """Return the states at the ends [N, classes, width], computed by the model's own blocks."""
        tower, (count, length, _) = self._tower, prefix.shape
        classes, longest = tokens.ids.shape
        own = self._embed(tokens.ids) + tower.positional_embedding[length : length + longest]
        parts = [prefix.repeat_interleave(classes, dim=0), own.repeat(count, 1, 1)]
        size = length + longest
        rough = self._dtype == torch.bfloat16
        with torch.autocast(self._device.type, torch.bfloat16, enabled=rough):
            x = tower.transformer(torch.cat(parts, dim=1), attn_mask=tower.attn_mask[:size, :size])
        states: Tensor = x.float().view(count, classes, size, self.width)
        return states[:, torch.arange(classes, device=x.device), length + tokens.ends]

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = F.embedding(ids, self._tower.token_embedding.weight)
        return embedded.detach()

    def _project(self, x: Tensor) -> Tensor:
        projection = self._tower.text_projection
        if isinstance(projection, nn.Linear):
            x = projection(x)
        elif projection is not None:
            x = x @ projection
        return F.normalize(x.float(), dim=-1)

    @property
    def _device(self) -> torch.device:
        device: torch.device = self._tower.positional_embedding.device
        return device


def _unfit(tower: Any, tokenizer: Any) -> str:
    """Say why a text tower cannot take context vectors; "" if it can."""
    needed = ("token_embedding", "positional_embedding", "transformer", "ln_final", "attn_mask")
    lacks = [name for name in needed if not hasattr(tower, name)]
    pool = getattr(tower, "text_pool_type", getattr(tower, "pool_type", ""))
    if lacks:
        return f"its text tower ({type(tower).__name__}) has no {lacks[0]}"
    if getattr(tower, "cls_emb", None) is not None:
        return "its text tower reads a class token behind the text"
    if tower.attn_mask is None:
        return "its text tower is not causal"
    if pool not in {"argmax", "eos"}:
        return f"its text tower pools by {pool!r}, not at the end of the text"
    if not isinstance(tokenizer, SimpleTokenizer):
        return f"its tokenizer ({type(tokenizer).__name__}) is not the CLIP byte pair encoding"
    return ""
