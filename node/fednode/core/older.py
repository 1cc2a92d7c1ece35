"""A state directory that is older than what peers have seen: the rounds in between count as spent.

A state directory that was restored from a backup or copied does not know what its node
released later, so its privacy account would count too little. The answers of peers tell the node
how far it was before this start (node/fednode/core/members/boots.py). Only a round that more than
half of the other members have seen counts, so no member alone stops a node. Members that left do
not count.

The node warns. If privacy is on, it counts the releases of the rounds in between as spent, and it
is paused and sends no prompts until its operator says `fednode resume --older-state`.
"""

from __future__ import annotations

from typing import Final

from fednode.core.events import Effect, Level, Record, Send, Spend
from fednode.core.members.table import Members
from fednode.core.policy import NodeContext
from fednode.core.types import Account

OLDER: Final = "state.older"
RELEASES_A_ROUND: Final = 2
"""Most results that leave a node in one round: a method has at most two stages."""


class Older:
    """Whether a node's state is older than what its peers have seen; see the file's header.

    undecided: why the node is paused until its operator decides; "" if it is not. warning: what
    status says; "" for nothing.
    """

    def __init__(
        self, context: NodeContext, members: Members, round_number: int, account: Account
    ) -> None:
        """Begin with the round on disk, and what the privacy account says.

        A directory without rounds was reset or emptied. With an account its releases are counted;
        without privacy there is nothing to count, and the node begins anew.
        """
        self._context, self._members = context, members
        self._own = round_number or account.releases
        self._anew = not round_number and not context.private
        self._words: dict[str, int] = {}
        self.undecided = self.warning = account.undecided

    def told(self, peer: str, later: int) -> list[Effect]:
        """Learn from a peer's answer how far this node was before its start; 0 if no further."""
        if later <= self._own or self._anew:
            return []
        self._words[peer] = later
        newest = self._seen_by_most()
        if newest <= self._own:
            return []
        missing, self._own = RELEASES_A_ROUND * (newest - self._own), newest
        new, private = not self.warning, self._context.private
        if new:
            self.warning = self._sentence(newest)
        level: Level = "error" if private else "warning"
        record = Record(OLDER, self.warning, level, {"round": newest})
        effects: list[Effect] = [record] if new else []
        if private:
            self.undecided = self.warning
            effects.append(Spend(missing, self.undecided))
        return effects

    def _seen_by_most(self) -> int:
        """Return the newest round that more than half of the other members have seen; else 0."""
        others = self._members.remaining()
        words = sorted((self._words[peer] for peer in others if peer in self._words), reverse=True)
        half = len(others) // 2
        return words[half] if len(words) > half else 0

    def permitted(self, effects: list[Effect]) -> list[Effect]:
        """Return a policy's effects, without messages while the node waits for its operator."""
        if not self.undecided:
            return effects
        return [effect for effect in effects if not isinstance(effect, Send)]

    def accept(self) -> list[Effect]:
        """Let the node go on from its state, because its operator says so."""
        self.undecided = self.warning = ""
        return [Spend(0)]

    def _sentence(self, newest: int) -> str:
        name = self._context.name
        text = (
            f"peers have seen {name} in round {newest:,}, and this state directory is older: it "
            "was restored, copied or emptied"
        )
        if not self._context.private:
            return f"{text}. Put the newest state directory back, if there is one"
        return (
            f"{text}. The rounds in between count as spent. With privacy on the node sends no "
            "prompts until you decide: stop it and put the newest state directory back, or let it "
            f"go on from here with: fednode resume {name} --older-state"
        )
