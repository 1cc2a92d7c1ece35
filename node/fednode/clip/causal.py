"""Texts through a causal tower of CLIP's plain blocks, whose common beginning is computed once.

open_clip encodes every text at its full length. The tower is causal, so tokens after the end of a
text cannot change the result, and the common beginning of all texts has the same states for all.
This module computes no token after an end, and computes the beginning with the context once
(node/fednode/clip/prefix.py). Both are exact.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fednode.clip.blocks import Block
from fednode.clip.prefix import last_states
from fednode.clip.tokens import ClassTokens, Tokenizer


class Causal:
    """A causal tower that reads the end of a text."""

    def __init__(self, tower: Any, blocks: list[Block], tokenizer: Tokenizer) -> None:
        """Take a tower of open_clip and its blocks."""
        self._tower = tower
        self.blocks = blocks
        # On the tower's device once, because each copy there waits for a GPU.
        device = tower.positional_embedding.device
        self._begin = torch.tensor(tokenizer.begin, dtype=torch.long, device=device)
        self.length_max = int(tower.positional_embedding.shape[0])

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings [..., width] of ids [...]."""
        embedded: Tensor = F.embedding(ids, self._tower.token_embedding.weight)
        return embedded.detach()

    def encode(self, tokens: ClassTokens, contexts: Tensor, deep: Tensor | None) -> Tensor:
        """Return unit features [N, classes, D] in float32; contexts and deep as in TextTower."""
        tower, position = self._tower, self._tower.positional_embedding.detach()
        prefix, lengths = self._prefix(tokens, contexts)
        if tokens.names:
            own = self.embed(tokens.packed)
            endings = torch.stack(
                [own + position[before + tokens.endings.offset] for before in lengths]
            )
            begin = len(self._begin)
            x = last_states(self.blocks, prefix, endings, tokens.endings, deep, lengths, begin)
        else:
            x = prefix.new_zeros(len(contexts), 0, prefix.shape[-1])
        return self._project(tower.ln_final(x))

    def _prefix(self, tokens: ClassTokens, contexts: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Return the embedded beginnings [N, P, width] and their lengths, one if all are equal.

        Shorter beginnings end with unused rows.
        """
        position = self._tower.positional_embedding.detach()
        start = self.embed(self._begin)
        words = [self.embed(word) for word in tokens.words]
        lengths = tuple(len(self._begin) + contexts.shape[1] + len(word) for word in words)
        first, longest = start.expand(len(contexts), -1, -1), max(lengths)
        behind = pad_sequence(words, batch_first=True).expand(len(contexts), -1, -1)
        prefix = torch.cat([first, contexts.to(start.dtype), behind], dim=1)
        equal = len(set(lengths)) == 1
        return prefix + position[:longest], lengths[:1] if equal else lengths

    def _project(self, x: Tensor) -> Tensor:
        projection = self._tower.text_projection
        if isinstance(projection, nn.Linear):
            x = projection(x)
        elif projection is not None:
            x = x @ projection
        return F.normalize(x.float(), dim=-1)
