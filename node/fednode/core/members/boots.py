"""The starts of each member: two processes under one name, and how far a member was before.

A node draws a boot id at each start, and says it with each message of the kernel. For each member,
a receiver keeps the id that speaks now, the ids before it, and the last round that the start before
said. If that round is later than that of a message, the answer to the message says so: the sender
learns that its state directory is older (node/fednode/core/older.py).

If ids that spoke before come back, time after time, two processes speak in turns: a state directory
was copied, or a key was stolen. A message that was long on its way brings an id back once. A member
that joins again with a new key begins anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fednode.core.events import Effect, Record
from fednode.core.types import Message

COPIED: Final = "peer.copied"
FORMER_MAX: Final = 8
"""Number of earlier boot ids of a member that a node remembers."""


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
    """The starts of all members, by name; see the file's header."""

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
        return [Record(COPIED, _sentence(name), "warning", {"peer": name})]

    def later(self, message: Message) -> int:
        """Return the round that the sender's start before said, if it is later; else 0."""
        held = self._starts.get(message.sender)
        return held.before if held is not None and held.before > message.round else 0

    def warnings(self) -> list[str]:
        """Return a sentence on each member of which two processes speak."""
        return [_sentence(name) for name, held in sorted(self._starts.items()) if held.copied]


def _sentence(name: str) -> str:
    return (
        f"two processes speak with the key of {name}: its state directory was copied, or its key "
        "was stolen. Let its operator stop one of them"
    )
