"""Whole texts through a text tower's own modules, with learned vectors in place of some words.

For towers whose tokens see those behind them, which read another place than the end of the text, or
which transformers brings. Each text has an ordinary word at the place of each learned vector. A
hook at the embedding of tokens puts the vectors there, and hooks at the blocks put deep prompts. So
masks, positions, pooling and projection are the tower's own. Exact, forward and backward.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fednode.clip.prefix_text import ClassTokens
from fednode.clip.tokens import PROBE, Tokenizer


class HookedTextEncoder:
    """A tower that computes each text from its first to its last token."""

    def __init__(self, model: Any, tokenizer: Tokenizer, dtype: torch.dtype) -> None:
        """Take a model whose tower `prompt_fault` finds nothing wrong with."""
        tower = getattr(model, "text", model)
        self._model, self._tokenizer, self._dtype = model, tokenizer, dtype
        self._embedding = embedding_of(tower)
        # On the tower's device once, because each copy there waits for a GPU.
        device = self._embedding.weight.device
        self._begin = torch.tensor(tokenizer.begin, dtype=torch.long, device=device)
        self._word = torch.tensor(tokenizer.encode(PROBE)[:1], dtype=torch.long, device=device)
        self.blocks = blocks_of(tower)
        self._lock = threading.Lock()
        self.length_max = length_of(tower, tokenizer.length)
        config = getattr(tower, "config", None)
        # A tower that masks its padding gives the same features for texts without padding.
        self._fills = config is None or config.pad_token_id != tokenizer.pad

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings [..., width] of ids [...]."""
        embedded: Tensor = self._embedding(ids)
        return embedded.detach()

    def encode(self, tokens: ClassTokens, contexts: Tensor, deep: Tensor | None = None) -> Tensor:
        """Return unit features [N, classes, D] in float32; contexts and deep as in TextTower."""
        count, length, _ = contexts.shape
        classes = len(tokens.ids)
        ids = self._ids(tokens, count, length)
        if not classes:  # one text tells how wide features are
            ids = ids.new_full((count, self.length_max), self._tokenizer.pad)
        fresh = [contexts, *(() if deep is None else deep)]
        repeated = [rows.repeat_interleave(max(classes, 1), dim=0) for rows in fresh]
        rough = self._dtype == torch.bfloat16
        with self._replaced(repeated), torch.autocast(ids.device.type, torch.bfloat16, rough):
            output = self._read(ids)
        features: Tensor = output[0] if isinstance(output, tuple) else output
        unit = F.normalize(features.float(), dim=-1)
        return unit.view(count, -1, features.shape[-1])[:, :classes]

    def _read(self, ids: Tensor) -> Any:
        """Return what open_clip's `encode_text` returns for ids [texts, L], or its first part.

        A tower of transformers also picks out other tokens, by a mask for which a GPU waits. So its
        parts are called one by one.
        """
        tower = getattr(self._model, "text", self._model)
        if getattr(tower, "pooler", None) is None:
            return self._model.encode_text(ids)
        mask = (ids != tower.config.pad_token_id).long()
        states = tower.transformer(input_ids=ids, attention_mask=mask)
        return tower.proj(tower.pooler(states, mask))

    def _ids(self, tokens: ClassTokens, count: int, length: int) -> Tensor:
        """Return the ids [N * classes, L] of begin, `length` ordinary words, words and own ids."""
        pad = self._tokenizer.pad
        first = torch.cat([self._begin, self._word.expand(length)])
        classes = len(tokens.ids)
        parts = [
            torch.cat([first.expand(classes, -1), words.expand(classes, -1), tokens.ids], dim=1).T
            for words in tokens.words
        ]
        rows = pad_sequence(parts, batch_first=True, padding_value=pad).transpose(1, 2)
        rows = rows.expand(count, -1, -1).flatten(0, 1)
        missing = self.length_max - rows.shape[1] if self._fills else 0
        return F.pad(rows, (0, missing), value=pad)

    @contextmanager
    def _replaced(self, fresh: Sequence[Tensor]) -> Iterator[None]:
        """Put fresh[0] [texts, m, width] into the embeddings and fresh[i] before block i."""
        begin = len(self._begin)

        def put(x: Tensor, new: Tensor) -> Tensor:
            behind = x[:, begin + new.shape[1] :]
            return torch.cat([x[:, :begin], new.to(x.dtype), behind], dim=1)

        def before(new: Tensor) -> Any:
            def hook(_: nn.Module, words: tuple[Any, ...], named: dict[str, Any]) -> Any:
                if words:
                    return (put(words[0], new), *words[1:]), named
                return words, {**named, "hidden_states": put(named["hidden_states"], new)}

            return hook

        with self._lock, ExitStack() as hooks:  # hooks belong to the modules, which threads share
            embedded = self._embedding.register_forward_hook(lambda _, __, out: put(out, fresh[0]))
            hooks.enter_context(embedded)
            for block, new in zip(self.blocks[1:], fresh[1:], strict=False):
                hook = block.register_forward_pre_hook(before(new), with_kwargs=True)
                hooks.enter_context(hook)
            yield


def embedding_of(tower: Any) -> Any:
    """Return the module that embeds tokens; None if the tower has none."""
    embedding = getattr(tower, "token_embedding", None)
    ask = getattr(getattr(tower, "transformer", None), "get_input_embeddings", None)
    return embedding if embedding is not None or ask is None else ask()


def blocks_of(tower: Any) -> list[nn.Module]:
    """Return the blocks that deep prompts can stand between; an empty list if there are none."""
    transformer = getattr(tower, "transformer", None)
    own = getattr(transformer, "resblocks", None)
    if own is not None:
        return list(own) if getattr(transformer, "batch_first", True) else []
    count = getattr(getattr(tower, "config", None), "num_hidden_layers", None)
    lists = [module for module in (transformer.modules() if transformer is not None else ())
             if isinstance(module, nn.ModuleList) and len(module) == count]  # fmt: skip
    return list(lists[0]) if lists else []


def length_of(tower: Any, read: int) -> int:
    """Return how many tokens a tower reads, with those before and behind the text.

    read: by its tokenizer, which decides for towers of the library transformers up to their limit.
    """
    config = getattr(tower, "config", None)
    if config is None:
        return int(tower.context_length)
    most = int(getattr(config, "max_position_embeddings", 0) or 0)
    if any(
        isinstance(module, nn.Embedding)
        and module.padding_idx is not None
        and len(module.weight) == most
        for name, module in tower.named_modules()
        if name.endswith("position_embeddings")
    ):
        most -= config.pad_token_id + 1  # RoBERTa counts positions from behind the padding's id
    return min(read, most) if most else read
