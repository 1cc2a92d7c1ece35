"""The wait for peers before a node's first round: for whom, how long, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fednode.core.events import Record
from fednode.core.members.table import Members
from fednode.core.policy import NodeContext

PEERS_MAX: Final = 8
"""Number of peers to wait for at most on one machine, if rounds.start.peers is not set."""
BOUNDED_S: Final = 120.0
"""The longest wait on one machine, and of a node that ran before, if no setting says another."""
HELD_S: Final = 10.0  # time between two looks at a refused peer after the wait has ended


@dataclass(slots=True)
class FirstWait:
    """The wait of one node.

    adopted: the rounds that it ran before; after the last of all it waits for nobody. by: when the
    wait ends, on the host's clock; begun with `begin`. alone: the operator asked to wait no more.
    """

    context: NodeContext
    members: Members
    adopted: int
    by: float = math.inf
    alone: bool = False

    def begin(self, now: float) -> None:
        self.by = now + self.limit_s

    @property
    def limit_s(self) -> float:
        """The longest wait; infinite if the node waits without end."""
        limit = self.context.rounds.start.timeout_s
        return limit if limit is not None else math.inf if self._all else BOUNDED_S

    @property
    def held(self) -> bool:
        """Whether a refused peer keeps the first round from beginning without it."""
        asked = self.alone or self.adopted or self.context.rounds.start.timeout_s is not None
        return not asked and any(member.state == "refused" for member in self.members.view())

    @property
    def short(self) -> int:
        """How many peers that can take part must still answer."""
        if self.alone or 0 < self.context.rounds.max <= self.adopted:
            return 0
        chosen, grows = self.context.rounds.start.peers, self.context.grows
        ready = len(self.members.active())
        if chosen is None and self._all:
            return int(not ready) if grows else len(self._silent())
        wanted = min(PEERS_MAX if chosen is None else chosen, len(self.members.expected()))
        if chosen is not None and grows and not self.adopted:
            wanted = chosen  # more members will come than are known
        return max(0, wanted - ready)

    @property
    def _all(self) -> bool:
        """Whether all listed peers are waited for without end (in a mesh that grows: one peer)."""
        return (self.context.remote or self.context.grows) and not self.adopted

    def _silent(self) -> list[str]:
        """Return the listed peers, or all known ones on one machine, that do not take part yet."""
        expected, ready = self.members.expected(), self.members.active()
        names = self.members.listed if self._all else set(expected)
        return [name for name in expected if name in names and name not in ready]

    @property
    def awaited(self) -> str:
        """The peers that are waited for and why they are missing, as words; "" if nobody is."""
        short, silent = self.short, self._silent()
        if not short:
            return ""
        if not silent:
            return "a peer to join" if short == 1 else f"{short} peers to join"
        live, refused, quiet = list[str](), list[str](), list[str]()
        for name in silent:
            member = self.members[name]
            if member.live:
                live.append(f"{name} ({self._over(name)})")
            elif member.state == "refused":
                refused.append(f"{name} (refused: {member.reason})")
            else:
                quiet.append(name)
        parts = [f"{', '.join(quiet[:PEERS_MAX])} (no answer)"] if quiet else []
        parts += [*live[:PEERS_MAX], *refused[:PEERS_MAX]]
        if short > len(silent):
            parts.append(f"{short - len(silent)} more that this node does not know yet")
        return (f"{short} of " if short < len(silent) else "") + ", ".join(parts)

    def _over(self, name: str) -> str:
        """Return why a live peer takes part in no round, as words."""
        if 0 < self.context.rounds.max <= self.members[name].round:
            return "it ran all its rounds alone: fednode reset and fednode start there"
        return f"it takes part in no round now; if it is paused: fednode resume {name}"

    def waits(self, number: int) -> Record:
        """Return the record of the wait before round `number`."""
        limit = "without end" if self.limit_s == math.inf else f"at most {self.limit_s:g} s"
        text = f"round {number} waits for {self.awaited}, {limit} (rounds.start)"
        return Record("start.waiting", text)

    def late(self, number: int) -> list[Record]:
        """Return a warning for those that did not answer in time; nothing if all did."""
        if not self.short:
            return []
        text = f"round {number} begins without {self.awaited}, after {self.limit_s:g} s"
        return [Record("start.late", text, "warning")]
