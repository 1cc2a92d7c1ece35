"""The pool of received prompt rows: the newest entry of each sender, bounded in age and size."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fednode.core.types import Array


@dataclass(frozen=True, slots=True)
class Entry:
    """One sender's rows [k, width]. age: merges of the receiver since the rows arrived."""

    sender: str
    round: int
    rows: Array
    age: int = 0


class Pool:
    """At most one entry per sender, kept for `age_limit` merges of the receiver.

    With an age limit of 1, as in the paper, received rows are used in one merge and then dropped.
    """

    def __init__(self, age_limit: int) -> None:
        self._age_limit = age_limit
        self.givers: tuple[str, ...] = ()
        """Senders of the rows that the last draw chose."""
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter([self._entries[sender] for sender in sorted(self._entries)])

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> bool:
        """Store an entry if it is newer than its sender's old entry; tell whether it was."""
        held = self._entries.get(entry.sender)
        if held is not None and held.round >= entry.round:
            return False
        self._entries[entry.sender] = entry
        return True

    def grow_older(self) -> None:
        """Count one merge and drop the entries that have reached the age limit."""
        self._entries = {
            entry.sender: Entry(entry.sender, entry.round, entry.rows, entry.age + 1)
            for entry in self
            if entry.age + 1 < self._age_limit
        }

    def draw(self, rows: int, generator: random.Random, keep_positions: bool) -> dict[int, Array]:
        """Choose a received row for each of `rows` positions.

        The rows come from different senders as long as possible, and a sender's row is taken again
        only after all rows of that sender were taken. keep_positions: position i takes row i of its
        sender; otherwise it takes a random row of its sender. Returns position -> row [width]. A
        position is left out if no sender has a row for it.
        """
        chosen: dict[int, Array] = {}
        senders: list[Entry] = []
        left: dict[str, list[int]] = {}  # rows of each sender that no position has taken
        for position in range(rows):
            if not senders:
                senders = list(self)
                generator.shuffle(senders)
            fitting = [
                sender for sender in senders if not keep_positions or position < len(sender.rows)
            ]
            if not fitting:
                continue
            entry = fitting[0]
            senders.remove(entry)
            rest = left.get(entry.sender) or list(range(len(entry.rows)))
            left[entry.sender] = rest
            index = position if keep_positions else rest.pop(generator.randrange(len(rest)))
            chosen[position] = entry.rows[index]
        self.givers = tuple(sorted(left))
        return chosen


def merge(own: Array, chosen: dict[int, Array]) -> Array:
    """Return a copy of own [m, width] with the chosen rows in place of its own."""
    merged = np.array(own, copy=True)
    for position, row in chosen.items():
        merged[position] = row
    return merged
