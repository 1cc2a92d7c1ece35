"""The frozen text tower with learned context vectors: [SOS, context (m), class name, '.', EOT].

open_clip encodes every text at its full length of 77. The tower is causal, so nothing behind the
end of a text can change it, and what all texts begin with is the same for all: no token behind an
end is computed here, and [SOS] with the context once (node/clip/prefix.py). Both are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor, nn

from node.clip.prefix import Endings, last_states, shares
from node.errors import ModelError


@dataclass(frozen=True, slots=True)
class ClassTokens:
    """Token ids of class names: `ids` [classes, length], 0 behind the end; `ends` [classes].

    Row by row [SOS, name, '.', EOT]; `ends` is where EOT stands. packed: all ids but SOS [T], row
    behind row without padding, as `endings` says.
    """

    names: tuple[str, ...]
    ids: Tensor
    ends: Tensor
    packed: Tensor
    endings: Endings


class TextTower:
    """Encode token embeddings as open_clip does, without knowing where they came from."""

    def __init__(self, model: nn.Module, tokenizer: Any, label: str) -> None:
        """Take the text modules of an open_clip model; raise ModelError for an unfit tower."""
        tower: Any = getattr(model, "text", model)
        unfit = _unfit(tower, tokenizer)
        if unfit:
            raise ModelError(
                f"{label} cannot be prompted: {unfit}; choose a CLIP with a causal text "
                "transformer and the CLIP tokenizer, such as ViT-B-16."
            )
        self._tower = tower
        self._tokenizer: SimpleTokenizer = tokenizer
        self._label = label
        self._shares = shares(tower.transformer)
        self.width = int(tower.token_embedding.weight.shape[1])
        self.length_max = int(tower.positional_embedding.shape[0])

    def tokens(self, names: Sequence[str], context_length: int = 0) -> ClassTokens:
        """Tokenize class names as "name."; room for context_length vectors must be left."""
        return self._tokenize(names, [f"{name}." for name in names], context_length)

    def texts(self, names: Sequence[str], template: str) -> ClassTokens:
        """Tokenize a hand-written template with each name put in for {}."""
        return self._tokenize(names, [template.replace("{}", name) for name in names], 0)

    def _tokenize(self, names: Sequence[str], texts: list[str], room: int) -> ClassTokens:
        tokenizer = self._tokenizer
        rows = [
            [tokenizer.sot_token_id, *tokenizer.encode(text), tokenizer.eot_token_id]
            for text in texts
        ]
        for name, row in zip(names, rows, strict=True):
            if len(row) + room > self.length_max:
                raise ModelError(
                    f"the class name {name[:60]!r} takes {len(row)} tokens, with {room} context "
                    f"vectors {len(row) + room}; {self._label} reads {self.length_max}: shorten "
                    "the name or lower tuning.context_length."
                )
        longest = max((len(row) for row in rows), default=2)
        ids = torch.zeros(len(rows), longest, dtype=torch.long, device=self._device)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
        ends = torch.tensor([len(row) - 1 for row in rows], device=self._device)
        packed = torch.tensor([token for row in rows for token in row[1:]], dtype=torch.long)
        return ClassTokens(tuple(names), ids, ends, packed.to(self._device), Endings.of(ends))

    def embed_words(self, words: str) -> Tensor:
        """Return the token embeddings [n, width] of some words, to start context vectors from."""
        ids = torch.tensor(self._tokenizer.encode(words), dtype=torch.long, device=self._device)
        embedded: Tensor = self._tower.token_embedding(ids)
        return embedded.detach()

    def encode(self, tokens: ClassTokens, context: Tensor | None = None) -> Tensor:
        """Return unit text features [classes, D] in float32.

        context: learned vectors [m, width] placed between SOS and the name, shared by all classes
        (ZeroDFL, CoOp); None for the plain text. Gradients flow to the context alone.
        """
        if context is not None and self._shares and len(tokens.names):
            return self._encode_shared(tokens, context)
        embedded = self._tower.token_embedding(tokens.ids).detach()
        if context is None:
            return self.encode_embedded(embedded, tokens.ends)
        shared = context.to(embedded.dtype).expand(len(embedded), -1, -1)
        embedded = torch.cat([embedded[:, :1], shared, embedded[:, 1:]], dim=1)
        return self.encode_embedded(embedded, tokens.ends + len(context))

    def _encode_shared(self, tokens: ClassTokens, context: Tensor) -> Tensor:
        """Compute [SOS, context] once for all classes, and nothing behind the end of a name."""
        tower, layout = self._tower, tokens.endings
        dtype = tower.transformer.get_cast_dtype()
        position = tower.positional_embedding.to(dtype)
        start = tower.token_embedding(tokens.ids[0, :1]).detach()
        prefix = torch.cat([start, context.to(start.dtype)]).to(dtype)
        names = tower.token_embedding(tokens.packed).detach().to(dtype)
        x = last_states(
            tower.transformer,
            prefix + position[: len(prefix)],
            names + position[len(prefix) + layout.offset],
            layout,
        )
        return self._project(tower.ln_final(x))

    def encode_embedded(self, embedded: Tensor, ends: Tensor) -> Tensor:
        """Return unit features [n, D] of token embeddings [n, L, width] that end at `ends` [n]."""
        tower = self._tower
        length = embedded.shape[1]
        dtype = tower.transformer.get_cast_dtype()
        x = embedded.to(dtype) + tower.positional_embedding[:length].to(dtype)
        x = tower.transformer(x, attn_mask=tower.attn_mask[:length, :length])
        # Only the end of each text is read, so only it is normalised.
        return self._project(tower.ln_final(x[torch.arange(len(x), device=x.device), ends]))

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
    """Say why a text tower cannot take context vectors; "" where it can."""
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
