"""The ledger of a sponsor: its invitations, and the names that it issued certificates for.

The running node and the commands of its operator change the ledger by turns: each of them locks it,
reads the whole file, and replaces it. An invitation is there with its public key; its token is in
the link alone.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from fednode.errors import ConfigError, IdentityError, StateError
from fednode.settings.faults import meant
from fednode.settings.read import Source, checked
from fednode.storage.disk import Disk, alone, content_if_any, explained, keep_private, put

FOLDER: Final = "enrolment"
"""The folder of a sponsor's files in its state directory."""
FILE: Final = "ledger.json"
DAY_S: Final = 24 * 3600
REPEAT_S: Final = 3600.0
"""A link that was used holds for so long: an answer may be lost, and its copies are found."""
INVITATIONS_MAX: Final = 64
"""Invitations at a time, used ones included: TLS looks through all of them at each handshake."""
HOLDERS_MAX: Final = 1024
ELSEWHERE: Final = "state directory"
_HEX: Final = re.compile("(?:[0-9a-f]{2})*")
KNOWN: Final = {"extra": "forbid"}
"""A field that this version does not know is a fault, because a change would lose it."""


class ApprovalPending(IdentityError):
    """The operator has to approve the key of a newcomer first."""


class TokenReused(IdentityError):
    """A second key shows the link of an invitation: somebody has a copy of it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An invitation. It was used if its site is among the holders.

    key: its public key, in hexadecimal digits. end: seconds since the epoch. id, address: of the
    first key that showed the link. accepted: that key may have the name.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = KNOWN
    key: str
    end: int
    accepted: bool = True
    id: str = ""
    address: str = ""

    @property
    def waiting(self) -> bool:
        """Whether a key waits for the operator."""
        return bool(self.id) and not self.accepted


@dataclass(slots=True)
class Book:
    """What the file holds: invitations by site, in the order in which they were made.

    holders: by name, the id of the key that got a certificate.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = KNOWN
    entries: dict[str, Entry]
    holders: dict[str, str]


class Ledger:
    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.time, disk: Disk | None = None
    ) -> None:
        """Set up; nothing is read or written yet. clock: returns seconds since the epoch."""
        self._folder, self._file = folder, folder / FILE
        self._clock, self._disk = clock, disk or Disk()

    # For the operator ------------------------------------------------------------------------

    def invite(self, site: str, key: bytes, days: float, approve: bool = False) -> None:
        """Add an invitation; the earlier invitation of the site ends.

        key: the public key of the invitation. approve: the operator approves the key of the site
        before it gets a certificate. Raise ConfigError if there is no room, or if the site is a
        member.
        """
        with self._change() as book:
            if site in book.holders:
                raise ConfigError(
                    f"{site!r} is a member already: choose another name, or run `fednode remove "
                    f"{site}` first if that site has lost its key."
                )
            book.entries.pop(site, None)
            if len(book.entries) >= INVITATIONS_MAX:
                raise ConfigError(
                    f"{INVITATIONS_MAX} invitations are open, or were used in the last hour, which "
                    "is the limit: end one with `fednode invite --refuse SITE`."
                )
            end = int(self._clock() + days * DAY_S)
            book.entries[site] = Entry(key.hex(), end, not approve)

    def settle(self, site: str, good: bool, id: str = "") -> None:
        """Let the key that waits for a name have it, or end the invitation of a site.

        id: the key that the operator saw. Raise ConfigError if no such key waits, or if there is no
        such invitation of a site that is no member yet.
        """
        waiting = good or bool(id)
        with self._change() as book:
            open_ = {
                name: entry
                for name, entry in book.entries.items()
                if name not in book.holders
                and id in {"", entry.id}
                and (entry.waiting or not waiting)
            }
            if site not in open_:
                what = "waits" if waiting else "has an open invitation"
                rest = f"there {'waits' if waiting else 'is'}: {', '.join(open_) or 'none'}."
                raise ConfigError(f"No site {site!r} {what}; {meant(site, list(open_)) or rest}")
            if good:
                book.entries[site] = replace(open_[site], accepted=True)
            else:
                del book.entries[site]

    def forget(self, name: str) -> None:
        with self._change() as book:
            book.entries.pop(name, None)
            book.holders.pop(name, None)

    def record(self, name: str, id: str) -> None:
        """Note a name that is issued without an invitation, which ends a link for it.

        Raise ConfigError if the name is taken.
        """
        with self._change() as book:
            if book.holders.setdefault(name, id) != id:
                raise ConfigError(f"{name!r} is a member already: choose another name.")
            book.entries.pop(name, None)

    # For the running node --------------------------------------------------------------------

    def check(self, site: str, id: str, owner: str = "") -> None:
        """Raise IdentityError if `enrol` would refuse a key, other than for want of acceptance."""
        self._require(self.read(), site, id, owner)

    def enrol(self, site: str, id: str, address: str, owner: str = "") -> None:
        """Note that a key gets the name it is invited under; raise IdentityError if it may not.

        owner: the id that has the name in the mesh; "" for none. Raise ApprovalPending if the
        operator has to accept the key first, TokenReused if another key came before.
        """
        with self._change() as book:
            entry = self._require(book, site, id, owner)
            end = entry.end
            if entry.accepted:
                end = min(end, int(self._clock() + REPEAT_S))
                book.holders[site] = id
            book.entries[site] = replace(entry, id=id, address=address, end=end)
        if not entry.accepted:
            raise ApprovalPending(
                f"the operator has to approve the key of {site!r} first: wait for word, then run "
                "the same command again"
            )

    def read(self) -> Book:
        """Return what the ledger holds now, without invitations that ended; raise StateError."""
        text = content_if_any(self._file)
        if text is None:
            return Book({}, {})
        try:
            tree: dict[str, Any] = json.loads(text)
            book = checked(Book, Source("the ledger", tree))
            for site, entry in book.entries.items():
                if not _HEX.fullmatch(entry.key):
                    raise ConfigError(f"entries.{site}.key is {entry.key!r}")
        except (ValueError, RecursionError, ConfigError) as fault:
            first = str(fault).partition("\n")[0].partition(";")[0].rstrip(".")
            raise StateError(
                f"{self._file} is damaged, or of another version of fednode ({first}): restore it "
                "from a backup, or rename it; then open links end, and members stay members."
            ) from fault
        now = self._clock()
        book.entries = {site: one for site, one in book.entries.items() if now <= one.end}
        return book

    def invitations(self) -> dict[bytes, str]:
        """Return the site of each invitation, by its public key."""
        return {bytes.fromhex(entry.key): site for site, entry in self.read().entries.items()}

    def stamp(self) -> object:
        """Return something that differs once the ledger was changed."""
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    # ------------------------------------------------------------------------------------------

    def _require(self, book: Book, site: str, id: str, owner: str) -> Entry:
        """Return the invitation of a site; raise IdentityError if it is not good for a key."""
        entry = book.entries.get(site)
        if entry is None:
            raise IdentityError(f"the link for {site!r} has ended: ask for a new link")
        if entry.id not in {"", id}:
            raise TokenReused(
                f"the link for {site!r} was used before, by another key: ask for a new link, and "
                "tell its sender, because somebody else may have a copy of this link"
            )
        if owner not in {"", id}:
            raise IdentityError(
                f"the name {site!r} belongs to another key: if that key is lost, ask the founder "
                f"for `fednode remove {site}`, and for a new link"
            )
        other = next((name for name, holder in book.holders.items() if holder == id), site)
        if other != site:
            raise IdentityError(f"this key has the name {other!r}: a key has one name")
        if site not in book.holders and len(book.holders) >= HOLDERS_MAX:
            raise IdentityError(f"{HOLDERS_MAX:,} nodes are enrolled, which is the limit")
        return entry

    @contextlib.contextmanager
    def _change(self) -> Iterator[Book]:
        """Yield the content; store it in the end, unless the caller raises."""
        with explained(f"{self._folder} cannot be made", "."):
            self._disk.make_folder(self._folder)
        keep_private(self._folder)
        with alone(self._folder / "lock"):
            book = self.read()
            yield book
            put(self._file, json.dumps(asdict(book), indent=1), ELSEWHERE, disk=self._disk)
