"""The pool of received prompt rows: newest message per sender, bounded in age and size."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from node.core.types import Array


@dataclass(frozen=True, slots=True)
class Entry:
    """One sender's rows [k, width]; age counts the receiver's merges since they arrived."""

    sender: str
    round: int
    rows: Array
    age: int = 0


class Pool:
    """At most one entry for each sender, kept for `age_limit` merges of the receiver.

    An age limit of 1 is the paper's pool: what arrived is used in one merge, then gone.
    """

    def __init__(self, age_limit: int) -> None:
        self._age_limit = age_limit
        self.givers: tuple[str, ...] = ()
        """Senders of the rows that were drawn last."""
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter([self._entries[sender] for sender in sorted(self._entries)])

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> bool:
        """Keep an entry unless a newer one of that sender is here; tell whether it was kept."""
        held = self._entries.get(entry.sender)
        if held is not None and held.round >= entry.round:
            return False
        self._entries[entry.sender] = entry
        return True

    def grow_older(self) -> None:
        """Count one merge and drop what has reached the limit."""
        self._entries = {
            entry.sender: Entry(entry.sender, entry.round, entry.rows, entry.age + 1)
            for entry in self
            if entry.age + 1 < self._age_limit
        }

    def draw(self, rows: int, generator: random.Random, keep_positions: bool) -> dict[int, Array]:
        """Choose a received row for each of `rows` positions, a different sender each while any is.

        keep_positions: position i takes row i of its sender; otherwise any row of it may land
        anywhere. Returns position -> row [width], and none where no sender has one for it.
        """
        chosen: dict[int, Array] = {}
        senders: list[Entry] = []
        givers = set[str]()
        for position in range(rows):
            if not senders:
                senders = list(self)
                generator.shuffle(senders)
            fitting = [one for one in senders if not keep_positions or position < len(one.rows)]
            if not fitting:
                continue
            entry = fitting[0]
            senders.remove(entry)
            index = position if keep_positions else generator.randrange(len(entry.rows))
            chosen[position] = entry.rows[index]
            givers.add(entry.sender)
        self.givers = tuple(sorted(givers))
        return chosen


def merge(own: Array, chosen: dict[int, Array]) -> Array:
    """Replace rows of own [m, width] by the chosen ones; the rest stay."""
    merged = np.array(own, copy=True)
    for position, row in chosen.items():
        merged[position] = row
    return merged
