"""Peers for which peers.yaml gives another address than they told themselves.

Either may be wrong: the file may be older than the peer's move, or newer. So the node calls the
peer at the file's address first. If two calls in a row fail, it calls the peer where the peer said
that it is, and so on in turn. If the peer tells another address than before, that address counts.
"""

from __future__ import annotations

from typing import Final

from fednode.core.events import Effect, Introduce
from fednode.core.members.table import Members

TRIES: Final = 2
"""Calls that fail in a row before a peer is called at its other address."""


class Places:
    """The two addresses of each such peer."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._both: dict[str, tuple[str, str]] = {}  # the file's, and what the peer told
        self._as_told = set[str]()  # peers that are called where they said that they are

    def filed(self, name: str, address: str) -> Effect:
        """Call a member at the address that the file gives it now."""
        told = self._members[name].address
        self._as_told.discard(name)
        self._both.pop(name, None)
        if told not in {"", address}:
            self._both[name] = address, told
        return Introduce(name, address)

    def failed(self, name: str) -> list[Effect]:
        """Return where to call a member next, after a call that nobody answered."""
        both = self._both.get(name)
        if both is None or self._members[name].failures % TRIES:
            return []
        if self._members[name].address != both[1]:
            del self._both[name]
            return []
        self._as_told ^= {name}
        return [Introduce(name, both[name in self._as_told])]
