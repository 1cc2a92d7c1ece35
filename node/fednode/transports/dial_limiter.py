"""Limit the addresses at which each peer is dialled: few at a time, and few new ones a minute.

A member announces its own address. Without a limit, a member that announces a new address in each
message would cost a socket per address, and would make all others dial any address it names.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from fednode.core.rate_limit import TokenBuckets
from fednode.errors import Unreachable
from fednode.transports.base import Address

Place = tuple[Address, str]
"""An address, and the name of the peer dialled there ("" if the caller names no peer)."""

PLACES_MAX: Final = 1024
PER_PEER: Final = 2
"""Addresses kept for each peer: the present address and the address before it."""
MOVES_MAX: Final = 6
MINUTE_S: Final = 60.0
"""New addresses of one peer that are dialled at once, and on average within so many seconds."""


class DialLimiter:
    """The places in use; a new place replaces the least recently used. Callers give the time."""

    def __init__(self) -> None:
        self._used: OrderedDict[Place, None] = OrderedDict()
        self._moves = TokenBuckets(MOVES_MAX, MOVES_MAX / MINUTE_S)

    def use(self, place: Place, now: float) -> list[Place]:
        """Mark a place as dialled; return the places that are given up for it.

        Raise Unreachable if the peer has had too many new addresses lately.
        """
        if place in self._used:
            self._used.move_to_end(place)
            return []
        address, who = place
        if who and not self._moves.of(who, now).take():
            raise Unreachable(
                f"cannot send to {address}: {who!r} named more than {MOVES_MAX} new addresses in a "
                "minute; a further one is not dialled yet"
            )
        self._used[place] = None
        own = [used for used in self._used if used[1] == who] if who else []
        gone = [*own[:-PER_PEER], *(list(self._used)[:1] if len(self._used) > PLACES_MAX else [])]
        for place_gone in gone:
            self._used.pop(place_gone, None)
        return gone
