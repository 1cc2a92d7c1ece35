"""The members that a node has met, in a file, so that it knows them at its next start.

If all nodes of a mesh stopped at once, nobody could call a member that no peers.yaml names without
the file. Each line holds a name, an address and the certificates. An address only says where to
greet the member first, and certificates are checked again. If a sponsor was revoked, the members of
the file stay that it signed (fednode.identity.roster).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fednode.core.members.table import GONE, LIVE, MEMBERS_MAX, Member
from fednode.core.types import MemberUpdate
from fednode.errors import AddressError, IdentityError, StateError
from fednode.identity.certificates import Certificate, Chain
from fednode.identity.roster import Roster
from fednode.storage.disk import content_if_any, put
from fednode.transports.address import parse

FILE: Final = "peers"
LOG: Final = logging.getLogger("fednode")


class PeerCache:
    def __init__(self, file: Path) -> None:
        """Set up; nothing is read or written yet."""
        self._file, self._text = file, ""
        self._lines = dict[str, tuple[str, Certificate]]()

    def load(self, roster: Roster) -> list[MemberUpdate]:
        """Return the members in the file whose certificates hold, as news; skip all other lines.

        Raise StateError if the system does not give the file.
        """
        self._text = (content_if_any(self._file) or b"").decode("ascii", "replace")
        news = list[MemberUpdate]()
        for line in self._text.splitlines()[:MEMBERS_MAX]:
            with contextlib.suppress(ValueError, IdentityError, AddressError, binascii.Error):
                name, address, text = line.split(" ")
                proof = base64.b64decode(text, validate=True)
                own = Chain.unpack(proof).own
                if own.name == name:
                    news.append(MemberUpdate(name, "alive", 0, str(parse(address)), own.id, proof))
                    self._lines[name] = line, own
        return list(roster.filter_gossip("", news))

    def store(self, members: Iterable[Member]) -> None:
        """Write the file anew if the members, their addresses or their certificates changed.

        A member that was alive once stays until it leaves or its certificate has ended, by the date
        of the newest certificate: this machine's clock may be wrong.
        """
        for member in members:
            if member.state in GONE:
                self._lines.pop(member.name, None)
            elif member.proof and member.address and member.state in LIVE:
                text = base64.b64encode(member.proof).decode()
                line = f"{member.name} {member.address} {text}"
                held = self._lines.pop(member.name, None)  # its new place is behind the dead
                if held is None or held[0] != line:
                    held = line, Chain.unpack(member.proof).own
                self._lines[member.name] = held
        newest = max((own.begins for _, own in self._lines.values()), default=0.0)
        kept = [(name, held) for name, held in self._lines.items() if held[1].ends > newest]
        self._lines = dict(kept[-MEMBERS_MAX:])
        text = "".join(f"{line}\n" for line, _ in self._lines.values())
        if text == self._text:
            return
        try:
            put(self._file, text, "state directory")
        except StateError as fault:
            LOG.warning("Members are not remembered: %s", fault)
        self._text = text
