"""The wait for peers before a node's first round: for whom, how long, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fednode.core.events import Record
from fednode.core.members.table import Members
from fednode.core.settings import RoundSettings

PEERS_MAX: Final = 8
"""Number of peers to wait for at most, if rounds.start.peers is not set."""


@dataclass(slots=True)
class FirstWait:
    """The wait of one node.

    adopted: the rounds that it ran before; after the last of all it waits for nobody. by: when the
    wait ends, on the host's clock; begun with `begin`.
    """

    rounds: RoundSettings
    members: Members
    adopted: int
    by: float = math.inf

    def begin(self, now: float) -> None:
        """Set the end of the wait."""
        self.by = now + self.rounds.start.timeout_s

    @property
    def short(self) -> int:
        """How many peers must still answer."""
        if 0 < self.rounds.max <= self.adopted:
            return 0
        chosen, known = self.rounds.start.peers, len(self.members)
        wanted = min(PEERS_MAX if chosen is None else chosen, known)
        return max(0, wanted - len(self.members.live()))

    @property
    def awaited(self) -> str:
        """The peers that are waited for, as words; "" if nobody is."""
        short, live = self.short, self.members.live()
        if not short:
            return ""
        silent = sorted(one.name for one in self.members.view() if one.name not in live)
        names = ", ".join(silent[:PEERS_MAX])
        return names if short == len(silent) else f"{short} of {names}"

    def waits(self, number: int) -> Record:
        """Return the record of the wait before round `number`."""
        limit = self.rounds.start.timeout_s
        text = f"round {number} waits for {self.awaited}, at most {limit:g} s (rounds.start)"
        return Record("start.waiting", text)

    def late(self, number: int) -> list[Record]:
        """Return a warning for those that did not answer in time; nothing if all did."""
        if not self.short:
            return []
        limit = self.rounds.start.timeout_s
        text = f"round {number} begins without {self.awaited}: no answer within {limit:g} s"
        return [Record("start.late", text, "warning")]
