"""Compare the member lists of two nodes by digests, so that only what differs is sent.

A list is cut into parts by a hash of the members' names, and each part has a digest. Node a sends
its digests. If a part of b's list has another digest, b sends its entries of that part, and a
answers with its own. So two equal lists cost one message. If many parts differ, b answers with some
of them, and a later comparison covers others. So the cost of a comparison has a bound that does not
depend on the number of members.

A digest covers what nodes can agree on: which members are live, with their incarnations and ids,
and which are revoked. It leaves out who is dead or unknown, and who is only suspected.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from fednode.core.types import Update

ANSWER: Final = "answer"
"""Fact of a "members" message that asks for an answer; marks a "ping" that is an errand."""
DIGESTS: Final = "digests"
"""Fact of a "members" message: the digests of all parts, eight hexadecimal digits each."""
PARTS: Final = "parts"
"""Fact of a "members" message: the number of all parts, then the numbers of those that it holds."""
PARTS_MAX: Final = 64
MEMBERS_A_PART: Final = 4
"""Members of a part on average, as long as there are at most PARTS_MAX parts."""
ENTRIES_MAX: Final = 64
"""Entries in an answer to digests, unless the first part alone has more."""
ASKING: Final = 16
"""Members, on average, that ask a peer for its list when it is back from the dead."""
_DIGITS: Final = 8
_HEXADECIMAL: Final = re.compile(rf"([0-9a-f]{{{_DIGITS}}}){{1,{PARTS_MAX}}}", re.ASCII)
_NUMBERS: Final = re.compile(rf"\d{{1,2}}( \d{{1,2}}){{1,{PARTS_MAX}}}", re.ASCII)


def question(listed: Sequence[Update]) -> dict[str, str]:
    """Return the facts of a message that asks a node to compare its list with this one."""
    parts = min(PARTS_MAX, max(1, -(-len(listed) // MEMBERS_A_PART)))
    return {ANSWER: "yes", DIGESTS: "".join(digests(listed, parts))}


def asks(live: int, draw: random.Random) -> bool:
    """Tell whether this node asks a peer that is back from the dead for its list.

    Both may have missed news. If all of many members asked, a return would cost a message each.
    live: members that may ask.
    """
    return live <= ASKING or draw.random() * live < ASKING


def answer(
    listed: Sequence[Update], facts: Mapping[str, str], turn: int
) -> tuple[dict[str, str], list[Update]] | None:
    """Return the facts and the entries of the answer to a "members" message; None if none is due.

    listed: this node's list. facts: of the message. turn: a number that differs from one answer to
    the next; it decides which parts are sent if the entries of all would be too many.
    """
    if facts.get(ANSWER) != "yes":
        return None
    if DIGESTS in facts:
        said = facts[DIGESTS]
        if not _HEXADECIMAL.fullmatch(said):
            return None
        theirs = [said[at : at + _DIGITS] for at in range(0, len(said), _DIGITS)]
        own = digests(listed, len(theirs))
        differ = [at for at, pair in enumerate(zip(own, theirs, strict=True)) if len({*pair}) > 1]
        if not differ:
            return None
        sent = _some(listed, len(theirs), differ, turn)
        numbers = " ".join(map(str, (len(theirs), *sent)))
        return {ANSWER: "yes", PARTS: numbers}, _of_parts(listed, len(theirs), sent)
    if PARTS in facts:
        if not _NUMBERS.fullmatch(facts[PARTS]):
            return None
        count, *numbered = map(int, facts[PARTS].split())
        return {}, _of_parts(listed, max(1, count), numbered)
    return None


def digests(listed: Iterable[Update], parts: int) -> list[str]:
    """Return the digest of each part of a list, in hexadecimal."""
    sums = [0] * parts
    for update in listed:
        if update.state in {"alive", "suspect"}:
            sums[_hash(update.name) % parts] ^= _hash(
                f"{update.name}\0{update.incarnation}\0{update.id}"
            )
        elif update.state == "revoked":
            sums[_hash(update.name) % parts] ^= _hash(f"{update.name}\0revoked\0{update.id}")
    return [f"{digest:0{_DIGITS}x}" for digest in sums]


def _some(listed: Iterable[Update], parts: int, differ: list[int], turn: int) -> list[int]:
    """Return the parts to send, sorted: at least one, and together at most ENTRIES_MAX entries."""
    sizes = Counter(_hash(update.name) % parts for update in listed)
    first = _hash(f"turn {turn}") % len(differ)
    chosen, room = list[int](), ENTRIES_MAX
    for part in (*differ[first:], *differ[:first]):
        room -= sizes[part]
        if chosen and room < 0:
            break
        chosen.append(part)
    return sorted(chosen)


def _of_parts(listed: Iterable[Update], parts: int, numbers: Iterable[int]) -> list[Update]:
    wanted = set(numbers)
    return [update for update in listed if _hash(update.name) % parts in wanted]


@lru_cache(maxsize=4096)
def _hash(text: str) -> int:
    """Return 32 bits of a hash that is the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
