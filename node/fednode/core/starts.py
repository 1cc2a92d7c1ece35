"""The starts of nodes: two processes under one name, and a state directory that is older.

A node draws a boot id at each start, and says it with each message of the kernel. For each member,
a receiver keeps the id that speaks now, the ids before it, and the last round that the start before
said. If that round is later than that of a message, the answer to the message says so.

If ids that spoke before come back, time after time, two processes speak in turns: a state directory
was copied, or a key was stolen. A message that was long on its way brings an id back once. A member
that joins again with a new key begins anew.

A state directory that was restored from a backup or copied does not know what its node released
later, so its privacy account would count too little. The answers of peers tell the node how far it
was before this start. Only a round that more than half of the other members have seen counts, so no
member alone stops a node. Members that left do not count. The node warns. If privacy is on, it
counts the releases of the rounds in between as spent, and it is paused and sends no prompts until
its operator says `fednode resume --older-state`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fednode.core.events import Effect, Level, Record, Send, Spend
from fednode.core.members.table import Members
from fednode.core.policy import NodeContext
from fednode.core.types import Account, Message

COPIED: Final = "peer.copied"
FORMER_MAX: Final = 8  # number of earlier boot ids of a member that a node remembers
OLDER: Final = "state.older"
RELEASES_A_ROUND: Final = 2
"""Most results that leave a node in one round: a method has at most two stages."""


@dataclass(slots=True)
class _Starts:
    """The starts of one member. present: the id that speaks now. round: the last that it said.

    before: the last round that the id before it said. first_s, last_s: when ids have come back.
    key: the id of its key; "" if it is not known.
    """

    present: str
    key: str = ""
    round: int = 0
    before: int = 0
    former: tuple[str, ...] = ()
    first_s: float = -math.inf
    last_s: float = -math.inf
    copied: bool = False


class Boots:
    def __init__(self) -> None:
        self._starts: dict[str, _Starts] = {}

    def heard(self, now: float, message: Message, key: str, late_s: float) -> list[Effect]:
        """Note the boot id and the round of a message of the kernel.

        key: the id of the sender's key. late_s: a message is not longer on its way. If ids come
        back once more after that time, they are two processes, until none has come back for ten
        times as long.
        """
        name, boot = message.sender, message.boot
        if not boot:
            return []
        held = self._starts.setdefault(name, _Starts(boot))
        if held.key and held.key != key:
            held = self._starts[name] = _Starts(boot)
        held.key = key
        over = now - held.last_s > 10 * late_s
        held.copied = held.copied and not over
        if boot == held.present:
            held.round = message.round
            return []
        back = boot in held.former
        others = tuple(one for one in held.former if one != boot)
        held.former = (*others, held.present)[-FORMER_MAX:]
        held.present, held.before, held.round = boot, held.round, message.round
        if not back:
            return []
        held.first_s, held.last_s = now if over else held.first_s, now
        if held.copied or now - held.first_s <= late_s:
            return []
        held.copied = True
        return [Record(COPIED, _copied(name), "warning", {"peer": name})]

    def later(self, message: Message) -> int:
        """Return the round that the sender's start before said, if it is later; else 0."""
        held = self._starts.get(message.sender)
        return held.before if held is not None and held.before > message.round else 0

    def warnings(self) -> list[str]:
        """Return a sentence on each member of which two processes speak."""
        return [_copied(name) for name, held in sorted(self._starts.items()) if held.copied]


def _copied(name: str) -> str:
    return (
        f"two processes speak with the key of {name}: its state directory was copied, or its key "
        "was stolen. Let its operator stop one of them"
    )


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

    def note_answer(self, peer: str, later: int) -> list[Effect]:
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
