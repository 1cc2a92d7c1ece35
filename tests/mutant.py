"""A mutant, and the mutants of what bounds one member, of a node's life and of late peers."""

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


LIVES: Final = {
    "lives-one-word": Mutant(
        "node/fednode/core/lives.py",
        "needed = (len(remaining) + 1) // 2 + 1",
        "needed = 1",
        ("tests/unit/core/test_lives.py",),
    ),
    "lives-speak-on": Mutant(
        "node/fednode/core/lives.py",
        "                if self.undecided:\n                    continue\n",
        "",
        ("tests/unit/core/test_lives.py",),
    ),
    "lives-any-proof": Mutant(
        "node/fednode/identity/marks.py",
        "or not self._signed(mark, self.identity)",
        "",
        ("tests/unit/identity/test_marks.py",),
    ),
}
INSIDERS: Final = {
    "zerodfl-busy": Mutant(
        "node/fednode/policies/zerodfl/exchange.py",
        "        chosen.update((peer, chosen.get(peer, 0) + 1) for peer in drawn)\n",
        "",
        ("tests/unit/policies/zerodfl/test_exchange.py",),
    ),
    "revocation-date": Mutant(
        "node/fednode/identity/lease.py",
        'self.kind != "revocation" and ',
        "",
        ("tests/unit/identity/test_trust.py",),
    ),
    "meter-frames": Mutant(
        "node/fednode/transports/meter.py",
        "and self.frames <= BURST_S * rates.frames",
        "",
        ("tests/unit/transports/test_meter.py",),
    ),
    "meter-unfinished": Mutant(
        "node/fednode/transports/meter.py",
        "self.unfinished_bytes > UNFINISHED_BYTES_MAX",
        "False",
        ("tests/unit/transports/test_meter.py",),
    ),
    "meter-doors": Mutant(
        "node/fednode/transports/meter.py",
        "self.doors + 1 > self.rates.doors_at_once",
        "False",
        ("tests/unit/transports/test_meter.py",),
    ),
    "room-fair": Mutant(
        "node/fednode/transports/room.py",
        "lost = max(self._held, key=lambda other: len(self._held[other]))",
        "lost = source if source in self._held else next(iter(self._held))",
        ("tests/unit/transports/test_room.py",),
    ),
    "room-pieces": Mutant(
        "node/fednode/transports/exchange.py",
        "self._assembling[caller] > self._room()",
        "False",
        ("tests/unit/transports/test_exchange.py",),
    ),
}
_LATENESS: Final = "node/fednode/core/rounds/lateness.py"
_ACCOUNTS: Final = ("tests/unit/core/rounds/test_lateness.py",)
_MESHES: Final = ("tests/unit/lab/sim/test_late.py",)
LATE: Final = {
    "late-never-full": Mutant(
        _LATENESS, "account > full and", "account > 100 * full and", (*_ACCOUNTS, *_MESHES)
    ),
    "late-full-at-once": Mutant(
        _LATENESS,
        "account > full and",
        "account > 0 and",
        (f"{_ACCOUNTS[0]}::test_a_moment_of_weakness_costs_no_rest",),
    ),
    "late-no-spare": Mutant(
        _LATENESS,
        "- middle - SPARE * share * median",
        "- middle",
        (f"{_ACCOUNTS[0]}::test_a_peer_that_is_a_little_late_is_always_waited_for",),
    ),
    "late-short-rests": Mutant(
        _LATENESS, "rounds = min(int(2 * medians) + 1,", "rounds = min(2,", _ACCOUNTS
    ),
    "late-same-rests": Mutant(
        _LATENESS,
        "self._rests[peer] = before + 1",
        "pass",
        (
            f"{_ACCOUNTS[0]}::test_where_the_deadline_is_very_long_the_average_holds_over_more_rounds",
        ),
    ),
    "late-one-vote": Mutant(_LATENESS, "> len({*among} - {peer})", "> 0", (*_ACCOUNTS, *_MESHES)),
    "late-votes-on-itself": Mutant(
        _LATENESS,
        "for other in ballots if other != peer)",
        "for other in ballots)",
        _ACCOUNTS,
    ),
    "late-strangers-vote": Mutant(
        _LATENESS,
        "        if self.name in among:\n            ballots",
        "        if True:\n            ballots",
        (f"{_MESHES[0]}::test_where_nodes_are_drawn_only_the_drawn_vote_so_all_merge_the_same",),
    ),
    "late-half-rests": Mutant(
        _LATENESS, "2 * len(found) < len(among)", "len(found) < len(among)", _ACCOUNTS
    ),
    "late-last-rounds": Mutant(
        _LATENESS, "number <= last - LAST_ROUNDS", "number <= last", (*_ACCOUNTS, *_MESHES)
    ),
    "late-own-of-one": Mutant(
        _LATENESS, "most = 2 * len(rest) > len(said) and", "most = bool(rest) and", _ACCOUNTS
    ),
    "late-for-ever": Mutant(
        _LATENESS,
        "min(until, number + 2 * REST_MAX)",
        "until",
        (f"{_ACCOUNTS[0]}::test_no_vote_lasts_for_ever",),
    ),
    "late-of-two": Mutant(_LATENESS, "(participants or 1 + len(live)) > 2", "True", _MESHES),
    "late-zerodfl-waits": Mutant(
        "node/fednode/policies/zerodfl/exchange.py",
        "return awaited - self._pace.resting(self._live)",
        "return awaited",
        ("tests/unit/core/rounds/test_pace.py",),
    ),
    "late-zerodfl-silent": Mutant(
        "node/fednode/policies/zerodfl/exchange.py",
        "phase, tensors, self._pace.vote)",
        "phase, tensors)",
        ("tests/unit/core/rounds/test_pace.py",),
    ),
    "late-zerodfl-far-votes": Mutant(
        "node/fednode/core/rounds/pace.py",
        "<= self._number + AHEAD_MAX",
        "",
        ("tests/unit/core/rounds/test_pace.py",),
    ),
}
