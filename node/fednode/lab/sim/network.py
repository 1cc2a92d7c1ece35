"""The network of a simulated mesh: the fate of every frame is drawn from one seed.

A frame is lost, arrives late, arrives twice, or waits in a clogged link until the link is cleared.
Each frame is delayed on its own, so frames overtake each other. Links can be cut one way or both.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

Link = tuple[str, str]
"""Sender and receiver."""


@dataclass(slots=True)
class Network:
    """Links between hosts, with delays and losses.

    delay_s: shortest and longest delay of a frame. loss, duplicates: shares (0..1) of frames.
    """

    chance: random.Random
    delay_s: tuple[float, float] = (0.001, 0.05)
    loss: float = 0.0
    duplicates: float = 0.0
    _cut: set[Link] = field(default_factory=set)
    _clogged: dict[Link, list[Callable[[], None]]] = field(default_factory=dict)

    def arrivals(self, sender: str, to: str) -> list[float]:
        """Return a frame's delays: none if it is lost, two if it is duplicated."""
        if (sender, to) in self._cut or (self.loss > 0 and self.chance.random() < self.loss):
            return []
        delays = [self.chance.uniform(*self.delay_s)]
        if self.duplicates > 0 and self.chance.random() < self.duplicates:
            delays.append(self.chance.uniform(*self.delay_s))
        return delays

    def hold(self, sender: str, to: str, act: Callable[..., None], *given: Any) -> bool:
        """Hold an arrival back if its link is clogged; tell whether it was held back."""
        waiting = self._clogged.get((sender, to))
        if waiting is None:
            return False
        waiting.append(partial(act, *given))
        return True

    def passes(self, sender: str, to: str) -> bool:
        """Tell whether a link is whole; a frame under way when its link is cut is lost."""
        return (sender, to) not in self._cut

    def cut(self, sender: str, to: str) -> None:
        self._cut.add((sender, to))

    def mend(self, sender: str, to: str) -> None:
        self._cut.discard((sender, to))

    def clog(self, sender: str, to: str) -> None:
        """Hold back all frames from one node to another until `clear`."""
        self._clogged.setdefault((sender, to), [])

    def clear(self, sender: str, to: str) -> list[Callable[[], None]]:
        """Unclog a link; return the arrivals that were held back, for the caller to perform now."""
        return self._clogged.pop((sender, to), [])

    def heal(self) -> list[Callable[[], None]]:
        """Mend and unclog all links and stop losses; return the arrivals that were held back."""
        self.loss = self.duplicates = 0.0
        self._cut.clear()
        links = sorted(self._clogged)
        return [act for link in links for act in self.clear(*link)]
