"""Encode texts with a common beginning by a causal text tower, the beginning once. Exact.

open_clip encodes every text at its full length. CLIP's text transformer is causal, so tokens after
the end of a text cannot change the result, and [SOS] and the context vectors never attend to the
class name: their states are the same for every class, with deep prompts as well. Each class's own
suffix (name, '.', EOT) is packed with others: all into one group if they take at most SINGLE rows,
else into groups of about GROUP rows. All rows, the prefix and the groups, lie in one matrix, so
every linear layer reads its weights once for all of them. A group attends to the prefix and to
itself; a mask keeps its classes apart. The last block computes only keys, values, and the states at
the ends of the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fednode.clip.blocks import Block, attend
from fednode.clip.device import to_device
from fednode.clip.tokens import Tokenizer

SINGLE: Final = 112
GROUP: Final = 32
"""Larger groups compute more attention between classes, which the mask takes away again."""


@dataclass(frozen=True, slots=True)
class PackedSuffixes:
    """The layout of n suffixes in G groups of R rows, with few unused rows.

    Attributes:
        source: [G * R], the token in each row, as its index among the tokens of all suffixes; 0 in
            unused rows
        offset: [G * R], its position after the prefix
        sees: [G, R, R], whether a row attends to another row
        ends: [G, E], the rows of the last tokens
        order: [n], the place of each suffix in [G * E]
    """

    source: Tensor
    offset: Tensor
    sees: Tensor
    ends: Tensor
    order: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int]) -> PackedSuffixes:
        """Return a layout for suffixes of these lengths, each at least 1."""
        groups = _pack(lengths)
        begins = [0, *accumulate(lengths)]
        tokens = [
            [(begins[at] + step, step, at) for at in group for step in range(lengths[at])]
            for group in groups
        ]
        rows, longest = (max(map(len, parts)) for parts in (tokens, groups))
        table = [[*row, *[(0, 0, -1)] * (rows - len(row))] for row in tokens]
        source, offset, owner = torch.tensor(table).view(len(groups), rows, 3).long().unbind(-1)
        step = torch.arange(rows)
        sees = (owner[:, :, None] == owner[:, None, :]) & (step[:, None] >= step)
        ends = torch.zeros(len(groups), longest, dtype=torch.long)
        order = torch.zeros(len(lengths), dtype=torch.long)
        for number, group in enumerate(groups):
            sizes = torch.tensor([lengths[at] for at in group], dtype=torch.long)
            ends[number, : len(group)] = sizes.cumsum(0) - 1
            order[group] = number * longest + torch.arange(len(group))
        return cls(source.flatten(), offset.flatten(), sees, ends, order)

    def to(self, device: torch.device) -> PackedSuffixes:
        parts = (self.source, self.offset, self.sees, self.ends, self.order)
        return PackedSuffixes(*(to_device(part, device) for part in parts))


@dataclass(frozen=True, slots=True, eq=False)
class ClassTokens:
    """Token ids of texts that begin with [SOS, context, words] and continue with a class name.

    A tower that takes no vectors has hand-written texts alone; then `ids` are the whole texts.

    Attributes:
        words: [w] for each prompt, or once for all prompts: ids between context and name
        ids: [classes, L], each text's own ids, padding after the end
        packed: [G * R], own ids as `endings` groups them
    """

    words: tuple[Tensor, ...]
    ids: Tensor
    packed: Tensor
    endings: PackedSuffixes


def _pack(lengths: Sequence[int]) -> list[list[int]]:
    """Divide suffixes among groups of nearly equal size: longest first, into the smallest group."""
    rows = sum(lengths)
    groups: list[list[int]] = [[] for _ in range(1 if rows <= SINGLE else round(rows / GROUP))]
    filled = [0] * len(groups)
    for at in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        least = filled.index(min(filled))
        groups[least].append(at)
        filled[least] += lengths[at]
    return groups


def encode_with_shared_prefix(
    blocks: Sequence[Block],
    prefix: Tensor,
    suffixes: Tensor,
    layout: PackedSuffixes,
    deep: Tensor | None = None,
    lengths: Sequence[int] = (),
    begin: int = 1,
) -> Tensor:
    """Return the states [N, n, width] at the ends of n texts after the last block, for N prefixes.

    Args:
        blocks: the tower's blocks
        prefix: N embedded beginnings [N, P, width]
        suffixes: embedded tokens in the order of `layout`, [N, G * R, width], or [1, G * R, width]
            if they are the same for each prefix
        layout: where the suffixes lie
        deep: [D, N, m, width], replace m rows of the prefix before blocks 1 to D (MaPLe, PLAN)
        lengths: of the N beginnings, if they differ: the rest of a beginning's P rows is unused
        begin: rows of the prefix before those that `deep` replaces

    The caller adds the positions.
    """
    count, length, _ = prefix.shape
    groups = len(layout.sees)
    mask = _mask(layout, length, lengths or (length,), blocks[0].dtype)
    future = mask.new_full((length, mask.shape[-1]), -torch.inf).triu(1)
    # One group and the prefix form one sequence; several groups attend to the prefix separately.
    masks = (
        (torch.cat([future.expand(len(mask), 1, -1, -1), mask[:, 0]], dim=2),)
        if groups == 1
        else (future[:, :length], mask.expand(count, -1, -1, -1, -1).flatten(0, 1))
    )
    x = torch.cat([prefix, suffixes.expand(count, -1, -1)], dim=1)
    for number, block in enumerate(blocks[:-1]):
        x = _replace(x, deep, number, begin)
        q, k, v = block.project_parts((x,) if number else (prefix, suffixes))
        x = block.finish(x, _attended(q, k, v, length, groups, masks))
    block = blocks[-1]
    x = _replace(x, deep, len(blocks) - 1, begin)
    begins = length + len(layout.source) // groups * torch.arange(groups, device=x.device)
    ends = layout.ends + begins[:, None]
    normed = block.ln_1(x)
    k, v = (_behind(array, length, groups) for array in block.project(normed, 1, 3))
    (q,) = block.project(normed.index_select(1, ends.flatten()), 0, 1)
    place = layout.ends[:, None, :, None].expand(len(mask), -1, 1, -1, mask.shape[-1])
    seen = mask.gather(3, place).expand(count, -1, -1, -1, -1).flatten(0, 1)
    mixed = attend(_grouped(q, groups), k, v, seen).view(count, ends.numel(), -1)
    read = ends.flatten()[layout.order]
    return block.finish(x.index_select(1, read), mixed.index_select(1, layout.order))


def _replace(x: Tensor, deep: Tensor | None, number: int, begin: int) -> Tensor:
    if deep is None or not 0 < number <= len(deep):
        return x
    fresh = deep[number - 1]
    behind = x[:, begin + fresh.shape[1] :]
    return torch.cat([x[:, :begin], fresh.to(x.dtype), behind], dim=1)


def _mask(
    layout: PackedSuffixes, length: int, lengths: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Return the mask to add to the attention scores of each prefix's groups.

    It is [n, G, 1, R, P + R] for n lengths of prefixes, of which no row sees an unused row.
    """
    groups, rows = layout.sees.shape[:2]
    shape = (len(lengths), groups, 1, rows, length + rows)
    mask = torch.zeros(shape, dtype=dtype, device=layout.sees.device)
    mask[:, :, 0, :, length:].masked_fill_(~layout.sees, -torch.inf)
    for masked, used in zip(mask, lengths, strict=True):
        masked[..., used:length] = -torch.inf
    return mask


def _attended(
    q: Tensor, k: Tensor, v: Tensor, length: int, groups: int, masks: tuple[Tensor, ...]
) -> Tensor:
    """Let the prefix attend to itself, and each group to the prefix and itself.

    q, k, v: [N, heads, P + G * R, head width]; the result is [N, P + G * R, width].
    """
    if groups == 1:
        return attend(q, k, v, masks[0])
    begin, rest = torch.split(q, [length, q.shape[2] - length], dim=2)
    first = attend(begin, k[:, :, :length], v[:, :, :length], masks[0])
    k, v = (_behind(array, length, groups) for array in (k, v))
    own = attend(_grouped(rest, groups), k, v, masks[1])
    return torch.cat([first, own.view(len(q), -1, own.shape[2])], dim=1)


def _grouped(x: Tensor, groups: int) -> Tensor:
    """Return [N * G, heads, R, head width] of [N, heads, G * R, head width]."""
    count, heads, _, width = x.shape
    return x.view(count, heads, groups, -1, width).transpose(1, 2).flatten(0, 1)


def _behind(x: Tensor, length: int, groups: int) -> Tensor:
    """Return the keys or values of each group after the prefix's, [N * G, heads, P + R, width]."""
    if groups == 1:
        return x
    prefix, own = torch.split(x, [length, x.shape[2] - length], dim=2)
    return torch.cat([prefix.repeat_interleave(groups, dim=0), _grouped(own, groups)], dim=2)


class PrefixTextEncoder:
    """A causal tower of CLIP's plain blocks that reads the end of a text."""

    def __init__(self, tower: Any, blocks: list[Block], tokenizer: Tokenizer) -> None:
        self._tower = tower
        self.blocks = blocks
        # On the tower's device once, because each copy there waits for a GPU.
        device = tower.positional_embedding.device
        self._begin = torch.tensor(tokenizer.begin, dtype=torch.long, device=device)
        self.length_max = int(tower.positional_embedding.shape[0])

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings [..., width] of ids [...]."""
        return F.embedding(ids, self._tower.token_embedding.weight).detach()

    def encode(self, tokens: ClassTokens, contexts: Tensor, deep: Tensor | None = None) -> Tensor:
        """Return unit features [N, classes, D] in float32; contexts and deep as in TextTower."""
        tower, position = self._tower, self._tower.positional_embedding.detach()
        prefix, lengths = self._prefix(tokens, contexts)
        if len(tokens.ids):
            own = self.embed(tokens.packed)
            layout, begin = tokens.endings, len(self._begin)
            suffixes = torch.stack([own + position[before + layout.offset] for before in lengths])
            x = encode_with_shared_prefix(
                self.blocks, prefix, suffixes, layout, deep, lengths, begin
            )
        else:
            x = prefix.new_zeros(len(contexts), 0, prefix.shape[-1])
        return self._project(tower.ln_final(x))

    def _prefix(self, tokens: ClassTokens, contexts: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Return the embedded beginnings [N, P, width], with unused rows behind shorter ones.

        And their lengths, one if all are equal.
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
