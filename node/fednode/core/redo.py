"""The rounds again: a node that ran its rounds alone begins them again together with its peers.

A node whose rounds are over tells its peers a word on every message and answer of the kernel:

    "ended"   it merged the prompts of no peer
    "again"   it begins its rounds again as soon as the peers that it waits for can take part
    ""        everything else: its rounds run, or they are over and merged a peer's prompts

Beside the word stands the number of its run, so that a word that was long on its way is known as
old. To a policy, a peer with a word is like a peer that is gone: no round waits for it.

A node wants to begin again if its operator asked for it (`fednode redo`), or if rounds.redo is set,
its word would be "ended", and it did so by itself fewer than REDOS_MAX times. It waits for the same
peers as before a first round. A live peer can take part if it begins again, too, or if its rounds
run: this node then joins them by catch-up, as a late node does. A peer that has finished with
merged prompts can take part if all nodes of the policy hold the same state and this node has merged
none: it takes over the peer's state. Otherwise such a peer must be asked to begin again, too,
because it sends nothing more.

So no node gives up its prompts before its peers have agreed, and a node that has merged prompts
never begins again unasked. A node with a word sends no prompts of the run that is over, and no
first round begins with it. The beginning is durable before anything follows from it; the host
keeps the run that is over (node/fednode/storage/runs.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fednode.core.events import Record
from fednode.core.types import Again
from fednode.core.waiting import FirstWait

OFFERED: Final = "redo.offered"
REDOS_MAX: Final = 3
"""How often a node begins its rounds again by itself; its operator may ask for more."""


@dataclass(slots=True)
class Redo(FirstWait):
    """The wait of one node whose rounds are over, before it begins them again.

    done: how often it began them again. catches_up: whether a node takes over the state of peers
    that have finished. never: its run merged the prompts of no peer. asked: the operator asked to
    begin again. under_way: the beginning is being made durable. offered: people were told that the
    node may begin again.
    """

    done: int = 0
    catches_up: bool = True
    never: bool = False
    asked: bool = False
    under_way: bool = False
    offered: bool = False

    def word(self, paused: bool) -> Again:
        """Return this node's word, now that its rounds are over. paused: by its operator."""
        if self.wanted and not paused:
            return "again"
        return "ended" if self.never else ""

    @property
    def wanted(self) -> bool:
        """Whether the node wants to begin again."""
        by_itself = self.context.rounds.redo and self.done < REDOS_MAX
        return self.asked or (self.never and by_itself)

    def begins(self, word: Again) -> bool:
        """Tell whether the node begins again now: enough peers can take part, one at least."""
        return word == "again" and not self.under_way and self.ready > 0 and not self.short

    @property
    def ready(self) -> int:
        """How many peers are live and can take part."""
        return len(self.others)

    @property
    def others(self) -> frozenset[str]:
        """The peers that are live and can take part."""
        return frozenset(name for name in self.members.live() if self.takes_part(name))

    def takes_part(self, name: str) -> bool:
        """Tell whether a live peer can take part if this node begins again."""
        word, most = self.members.redo.get(name, ""), self.context.rounds.max
        if word:
            return word == "again"
        return (self.catches_up and self.never) or self.members[name].round < most

    def over(self, name: str) -> str:
        """Return why a live peer cannot take part, as words."""
        how = "alone" if name in self.members.redo else "and sends nothing more"
        return f"it has run its rounds {how}; it begins again after: fednode redo {name}"

    def began(self) -> Record:
        """Return the record of the beginning."""
        own = self.context.name
        others = ", ".join(sorted(self.others))
        text = f"{own} begins its rounds again, with {others}; the prompts so far are kept"
        return Record("redo.began", text)

    def offers(self, word: Again) -> list[Record]:
        """Return a record that offers to begin again, once a peer is there; else nothing."""
        live = self.members.live()
        if word != "ended" or self.offered or not live:
            return []
        self.offered, own = True, self.context.name
        text = (
            f"{own} ran its rounds and merged no peer's prompts; {', '.join(live)} can be reached "
            f"now: fednode redo {own} begins the rounds again together"
        )
        return [Record(OFFERED, text, "warning")]
