"""The wires of a simulated mesh: every frame's fate is drawn from one seed.

A frame is lost, arrives late, arrives twice, or waits in a clogged link until that is cleared; as
each is delayed on its own, frames overtake each other. Links are cut one way or both.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

Link = tuple[str, str]
"""From whom and to whom."""


@dataclass(slots=True)
class Network:
    """delay_s: shortest and longest time of a frame. loss, duplicates: shares (0..1) of frames."""

    chance: random.Random
    delay_s: tuple[float, float] = (0.001, 0.05)
    loss: float = 0.0
    duplicates: float = 0.0
    _cut: set[Link] = field(default_factory=set)
    _clogged: dict[Link, list[Callable[[], None]]] = field(default_factory=dict)

    def arrivals(self, sender: str, to: str) -> list[float]:
        """Return when a frame arrives from now: never where it is lost, or twice."""
        if (sender, to) in self._cut or (self.loss > 0 and self.chance.random() < self.loss):
            return []
        found = [self.chance.uniform(*self.delay_s)]
        if self.duplicates > 0 and self.chance.random() < self.duplicates:
            found.append(self.chance.uniform(*self.delay_s))
        return found

    def hold(self, sender: str, to: str, act: Callable[[], None]) -> bool:
        """Keep an arrival back where its link is clogged; tell whether it was."""
        waiting = self._clogged.get((sender, to))
        if waiting is None:
            return False
        waiting.append(act)
        return True

    def passes(self, sender: str, to: str) -> bool:
        """Tell whether a link is whole now; a frame that is under way when it is cut is lost."""
        return (sender, to) not in self._cut

    def cut(self, sender: str, to: str) -> None:
        """Let nothing pass from one node to another."""
        self._cut.add((sender, to))

    def mend(self, sender: str, to: str) -> None:
        """Let frames pass again."""
        self._cut.discard((sender, to))

    def clog(self, sender: str, to: str) -> None:
        """Keep back what goes from one node to another, until it is cleared."""
        self._clogged.setdefault((sender, to), [])

    def clear(self, sender: str, to: str) -> list[Callable[[], None]]:
        """Return what was kept back, to be carried out now."""
        return self._clogged.pop((sender, to), [])

    def heal(self) -> list[Callable[[], None]]:
        """Make all links whole and frames safe; return what was kept back."""
        self.loss = self.duplicates = 0.0
        self._cut.clear()
        links = sorted(self._clogged)
        return [act for link in links for act in self.clear(*link)]
