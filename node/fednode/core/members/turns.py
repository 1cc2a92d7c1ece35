"""Whose turn it is: shuffled round-robins of members, and greetings that wait for an interval."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fednode.core.members.table import ABSENT, Members

GREETED_MAX: Final = 64
"""Members that a node greets in one interval; the others wait for the next one."""


class Rota:
    """A shuffled round-robin of the members in some states.

    draw: returns the generator that shuffles them when a new turn begins.
    """

    def __init__(
        self, members: Members, states: frozenset[str], draw: Callable[[], random.Random]
    ) -> None:
        self._members, self._states, self._draw = members, states, draw
        self._left: list[str] = []  # the next one last

    def next(self, names: Sequence[str]) -> str:
        """Return the member whose turn it is; "" if there is none. names: all in these states."""
        while self._left:
            name = self._left.pop()
            if self._members[name].state in self._states:
                return name
        self._left = list(names)
        self._draw().shuffle(self._left)
        self._left.reverse()
        return self._left.pop() if self._left else ""


class Greetings:
    """The members to greet, at most GREETED_MAX in an interval."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._waiting: dict[str, None] = {}
        self._room = GREETED_MAX

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def first(self, own: str) -> list[str]:
        """Let all members wait; return who is greeted in the first interval.

        The order begins behind the node's own name, so that not all nodes greet the same members.
        """
        names = sorted(self._members.remaining())
        behind = bisect(names, own)
        return sorted(self.add([*names[behind:], *names[:behind]]))

    def absent(self) -> list[str]:
        """Let all absent members wait; return who is greeted at once."""
        return sorted(self.add(self._members.absent()))

    def interval(self) -> list[str]:
        """Begin an interval; return who is greeted in it: members that are still not heard of."""
        silent = [name for name in self._waiting if self._members[name].state in ABSENT]
        self._waiting, self._room = {}, GREETED_MAX
        return sorted(self.add(silent))

    def add(self, names: Iterable[str]) -> list[str]:
        """Return those of some members that are greeted at once; the others wait."""
        names = list(names)
        now, later = names[: self._room], names[self._room :]
        self._room -= len(now)
        self._waiting |= dict.fromkeys(later)
        return now
