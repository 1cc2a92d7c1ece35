"""The members with leases that a node has met, in a file, so that it greets them at its next start.

No peers.yaml names these members. If all nodes of a mesh stopped at once, nobody could call anybody
without the file. Each line holds a name, an address and a lease. Nobody needs to trust the file:
each lease is checked again, and an address only says where to greet the member first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from fednode.core.members.table import GONE, MEMBERS_MAX, Member
from fednode.core.types import Update
from fednode.errors import AddressError, IdentityError, StateError
from fednode.identity import lease as leases
from fednode.identity.lease import Statement, armour, disarm
from fednode.identity.trust import Trust
from fednode.storage.files import put
from fednode.transports.address import parse

FILE: Final = "met"
LOOK_S: Final = 5.0
"""Time between two looks at the members."""
LOG: Final = logging.getLogger("fednode")


class Met:
    """The file of the members that one node has met."""

    def __init__(self, file: Path) -> None:
        """Set up; nothing is read or written yet."""
        self._file, self._held = file, ""
        self._before = dict[str, tuple[str, Statement]]()

    def remembered(self, trust: Trust) -> list[Update]:
        """Return the members in the file whose leases hold, as news; leave out all other lines."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            self._held = self._file.read_text(encoding="ascii")
        self._before = dict[str, tuple[str, Statement]]()
        known = list[Update]()
        for line in self._held.splitlines()[:MEMBERS_MAX]:
            with contextlib.suppress(ValueError, IdentityError, AddressError):
                name, address, lease = line.split(" ")
                statement = leases.peek(proof := disarm(lease))
                if statement.name == name:
                    known.append(Update(name, "alive", 0, str(parse(address)), statement.id, proof))
                    self._before[name] = line, statement
        return list(trust.believed("", known))

    def note(self, members: Iterable[Member]) -> None:
        """Write the file anew if the members, their addresses or their leases changed.

        A member of before that the node does not know now stays: its lease may not hold at present,
        or by a clock that is wrong. It goes a year after its lease ended.
        """
        lines = dict[str, str]()
        newest = max((held.issued for _, held in self._before.values()), default=0)
        for member in members:
            if member.state in GONE:
                self._before.pop(member.name, None)
            elif member.proof and member.address:
                lines[member.name] = f"{member.name} {member.address} {armour(member.proof)}\n"
                newest = max(newest, leases.peek(member.proof).issued)
        for name, (line, held) in self._before.items():
            if not leases.long_over(held, newest):
                lines.setdefault(name, f"{line}\n")
        text = "".join(list(lines.values())[:MEMBERS_MAX])
        if text == self._held:
            return
        try:
            put(self._file, text, "state directory")
        except StateError as fault:
            LOG.warning("Members are not remembered: %s", fault)
        self._held = text

    async def watch(self, members: Callable[[], Iterable[Member]]) -> None:
        """Note the members again and again, for as long as the node runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.note, tuple(members()))
