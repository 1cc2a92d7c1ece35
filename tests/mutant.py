"""A mutant, and the mutants of what bounds one member, of older states and of late peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one file. old: text that occurs once in the file. tests: pytest's test ids."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


OLDER: Final = {
    "older-one-word": Mutant(
        "node/fednode/core/starts.py",
        "half = len(others) // 2",
        "half = 0",
        ("tests/unit/core/test_older.py",),
    ),
    "older-speak-on": Mutant(
        "node/fednode/core/starts.py",
        "        if not self.undecided:\n            return effects\n",
        "        return effects\n",
        ("tests/unit/core/test_transcripts.py",),
    ),
    "boots-once": Mutant(
        "node/fednode/core/starts.py",
        "or now - held.first_s <= late_s",
        "",
        ("tests/unit/core/test_boots.py",),
    ),
}
INSIDERS: Final = {
    "zerodfl-busy": Mutant(
        "node/fednode/core/rounds/gossip.py",
        "        self._chosen.update((peer, self._chosen.get(peer, 0) + 1) for peer in drawn)\n",
        "",
        ("tests/unit/policies/test_zerodfl.py",),
    ),
    "revoked-sponsor": Mutant(
        "node/fednode/identity/roster.py",
        "if sponsor and sponsor.id in self._revoked and (",
        "if False and (",
        ("tests/unit/identity/test_roster.py",),
    ),
    "limiter-unknown": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "full = len(account.lines) > UNKNOWN_PER_SOURCE",
        "full = False",
        ("tests/unit/transports/test_connection_limiter.py",),
    ),
    "limiter-key": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "len(line.account.lines) > PER_KEY",
        "False",
        ("tests/unit/transports/test_connection_limiter.py",),
    ),
    "limiter-bytes": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "return max(self.level - bound, too_many",
        "return max(0.0, too_many",
        ("tests/unit/transports/test_connection_limiter.py",),
    ),
    "room-pieces": Mutant(
        "node/fednode/transports/exchange.py",
        "self._assembling[caller] > self._room()",
        "False",
        ("tests/unit/transports/test_exchange.py",),
    ),
}
