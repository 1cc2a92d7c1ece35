"""Compare the class names of this node with those of its peers.

Sites that call one class by two names train two classes. So the sentences name what only one side
has, and pairs of names that may mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from fednode.core.view import Life
from fednode.observe.client import ASKED_MAX
from fednode.units import listed
from fednode.wire.gen.status_pb2 import StatusReply
from fednode.wire.replies import ITEMS_MAX

NAMED: Final = 5
"""Most names or pairs that a sentence of the status lists."""
COMPARED_MAX: Final = 200
"""Most names of each side that are searched for pairs."""
ALIKE: Final = 0.85
"""Names with this share of equal letters in order may be one name, spelled in two ways."""
SPELLED_MIN: Final = 5
"""Shorter names differ by more than a slip in spelling: bee is not beer."""
AGAIN_S: Final = 5.0
"""After this time a peer is asked again that told no class names, because it was still loading."""
FRESH_S: Final = 60.0
"""After this time a peer is asked again for its class names."""
Ask = Callable[[Sequence[str]], Awaitable[Mapping[str, StatusReply]]]
"""Returns the status of the peers that answer."""


class Classes:
    """The class names that peers told, and when to ask each peer again."""

    def __init__(self) -> None:
        self._told: dict[str, Sequence[str]] = {}
        self._again: dict[str, float] = {}
        self._silent: set[str] = set()

    async def look(self, names: Sequence[str], ask: Ask, now: float) -> None:
        """Ask those of the peers for their class names that did not tell them lately."""
        due = [name for name in names if self._again.get(name, now) <= now][:ASKED_MAX]
        replies = await ask(due)
        for name in due:
            told = list(replies[name].classes) if name in replies else []
            if told:
                self._told[name] = told
                self._silent.discard(name)
            elif name in replies and replies[name].life != Life.LOADING:
                self._told.pop(name, None)
                self._silent.add(name)
            self._again[name] = now + (FRESH_S if told else AGAIN_S)

    def said(self, own: Sequence[str]) -> list[str]:
        """Return sentences on the classes that only this node or only peers have."""
        silent = ", ".join(sorted(self._silent))
        hidden = f"not compared, because they tell no class names (data.tell_classes): {silent}"
        return [*compared(own, self._told), *([hidden] if silent else [])]


def compared(
    own: Sequence[str], others: Mapping[str, Sequence[str]], most: int = NAMED
) -> list[str]:
    """Return sentences on the names that only one side has, and on pairs that may mean the same.

    others: names by peer; peers without names are left out. most: how many names or pairs are
    listed; more are counted.
    """
    told = tuple(
        (peer, tuple(names[:ITEMS_MAX])) for peer, names in sorted(others.items()) if names
    )
    return list(_compared(tuple(own), told, most))


@lru_cache(maxsize=64)
def _compared(
    own: tuple[str, ...], told: tuple[tuple[str, tuple[str, ...]], ...], most: int
) -> tuple[str, ...]:
    holders: dict[str, list[str]] = {}
    for peer, names in told:
        for name in dict.fromkeys(names):
            holders.setdefault(name, []).append(peer)
    mine = frozenset(own)
    here = [name for name in own if name not in holders]
    there = {name: peers for name, peers in sorted(holders.items()) if name not in mine}
    sentences = []
    if here and told:
        count = f"{len(here)} of its {len(own)} classes" if len(here) < len(own) else "its classes"
        sentences.append(f"Only this node has {count}: {listed(here, most)}.")
    if there:
        held = [f"{name} ({', '.join(peers)})" for name, peers in there.items()]
        sentences.append(f"Classes of peers that this node does not have: {listed(held, most)}.")
    # A peer that has both names tells two classes apart, so its names are no pair.
    pairs = []
    for name in [name for name in own if len(holders.get(name, ())) < len(told)][:COMPARED_MAX]:
        for other, peers in list(there.items())[:COMPARED_MAX]:
            apart = [peer for peer in peers if peer not in holders.get(name, ())]
            if apart and may_mean_the_same(name, other):
                pairs.append(f"'{name}' here and '{other}' at {', '.join(apart)}")
    if pairs:
        sentences.append(
            f"Class names that may mean the same: {listed(pairs, most)}. If they do, give both "
            "one name with data.rename ({FOLDER: NAME}) at one of the nodes."
        )
    return tuple(sentences)


def may_mean_the_same(first: str, second: str) -> bool:
    """Tell whether two different names are alike: in their words, or but for a slip in spelling.

    Names whose numbers differ, such as grade 1 and grade 2, are not alike.
    """
    words, numbers = zip(_parts(first), _parts(second), strict=True)
    if (all(numbers) and numbers[0] != numbers[1]) or not all(words):
        return False
    a, b = ({word.removesuffix("s") for word in word} for word in words)
    if a <= b or b <= a:
        return True
    left, two = ("".join(part) for part in words)
    matcher = SequenceMatcher(None, left, two, autojunk=False)
    long = min(len(left), len(two)) >= SPELLED_MIN
    return left == two or (long and matcher.real_quick_ratio() >= ALIKE <= matcher.ratio())


@lru_cache(maxsize=4 * COMPARED_MAX)
def _parts(name: str) -> tuple[list[str], list[str]]:
    return re.findall(r"[^\W\d_]+", name.casefold()), re.findall(r"\d+", name)
