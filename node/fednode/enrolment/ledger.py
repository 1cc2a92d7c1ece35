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
from fednode.storage.disk import Disk, alone, explained, keep_private
from fednode.storage.files import content_if_any, put

FOLDER: Final = "enrolment"
"""The folder of a sponsor's files in its state directory."""
FILE: Final = "ledger.json"
DAY_S: Final = 24 * 3600
REPEAT_S: Final = 3600.0
"""For so long an answer that was lost can be asked again."""
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
    """An invitation. It stays until its end, so that its copies are found.

    key: its public key, in hexadecimal digits. end: seconds since the epoch. again: the name
    belonged to a key that was lost. id, address: of the first key that showed the link. accepted:
    that key may have the name. used: when it got a certificate, as `end`; 0 before.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = KNOWN
    site: str
    key: str
    end: int
    again: bool = False
    accepted: bool = True
    id: str = ""
    address: str = ""
    used: int = 0

    @property
    def waiting(self) -> bool:
        """Whether a key waits for the operator."""
        return bool(self.id) and not self.accepted


@dataclass(frozen=True, slots=True)
class Holder:
    """The key that got a certificate for a name."""

    __pydantic_config__: ClassVar[dict[str, str]] = KNOWN
    name: str
    id: str
    address: str


@dataclass(slots=True)
class Book:
    """What the file holds: invitations by site, in the order in which they were made; holders."""

    __pydantic_config__: ClassVar[dict[str, str]] = KNOWN
    entries: dict[str, Entry]
    holders: dict[str, Holder]


class Ledger:
    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.time, disk: Disk | None = None
    ) -> None:
        """Set up; nothing is read or written yet. clock: returns seconds since the epoch."""
        self._folder, self._file = folder, folder / FILE
        self._clock, self._disk = clock, disk or Disk()

    # For the operator ------------------------------------------------------------------------

    def invite(
        self, site: str, key: bytes, days: float, *, again: bool = False, approve: bool = False
    ) -> None:
        """Add an invitation; the earlier invitation of the site ends.

        key: the public key of the invitation. again: the site may be a member that lost its key.
        approve: the operator approves the key of the site before it gets a certificate. Raise
        ConfigError if there is no room, or if the site is a member.
        """
        with self._change() as book:
            if site in book.holders and not again:
                raise ConfigError(
                    f"{site!r} is a member already: choose another name, or give --again if that "
                    "site has lost its key."
                )
            before = book.entries.pop(site, None)
            again = again or (before is not None and before.again and not before.used)
            used = [entry.site for entry in book.entries.values() if entry.used]
            for name in used[: max(0, len(book.entries) + 1 - INVITATIONS_MAX)]:
                del book.entries[name]
            if len(book.entries) >= INVITATIONS_MAX:
                raise ConfigError(
                    f"{INVITATIONS_MAX} invitations are open, which is the limit: end one with "
                    "`fednode invite --refuse SITE`."
                )
            end = int(self._clock() + days * DAY_S)
            book.entries[site] = Entry(site, key.hex(), end, again, not approve)

    def settle(self, site: str, good: bool, id: str = "") -> Entry:
        """Let the key that waits for a name have it, or end the invitation of a site.

        id: the key that the operator saw. Return the entry. Raise ConfigError if no such key waits,
        or if there is no such invitation of a site that is no member yet.
        """
        with self._change() as book:
            entry = _find(book, site, id, waiting=good or bool(id))
            if good:
                book.entries[site] = replace(entry, accepted=True)
            else:
                del book.entries[site]
            return entry

    def forget(self, name: str) -> None:
        with self._change() as book:
            book.entries.pop(name, None)
            book.holders.pop(name, None)

    def record(self, name: str, id: str, address: str) -> None:
        """Note a name that is issued without an invitation; raise ConfigError if it is taken."""
        with self._change() as book:
            holder = book.holders.get(name)
            if holder is not None and holder.id != id:
                raise ConfigError(f"{name!r} is a member already: choose another name.")
            book.holders[name] = Holder(name, id, address)

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
            used = entry.used or int(self._clock())
            known = replace(entry, id=id, address=address, used=used if entry.accepted else 0)
            book.entries[site] = known
            if entry.accepted:
                book.holders[site] = Holder(site, id, address)
        if not known.used:
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
            for entry in book.entries.values():
                if not _HEX.fullmatch(entry.key):
                    raise ConfigError(f"entries.{entry.site}.key is {entry.key!r}")
        except (ValueError, RecursionError, ConfigError) as fault:
            first = str(fault).partition("\n")[0].partition(";")[0].rstrip(".")
            raise StateError(
                f"{self._file} is damaged, or of another version of fednode ({first}): restore it "
                "from a backup, or use that version."
            ) from fault
        now = self._clock()
        book.entries = {site: one for site, one in book.entries.items() if now <= one.end}
        return book

    def invitations(self) -> dict[bytes, str]:
        """Return the site of each invitation, by its public key.

        One that was used is left out after REPEAT_S: whoever holds its link is known no more.
        """
        since = self._clock() - REPEAT_S
        entries = self.read().entries.values()
        open_ = (entry for entry in entries if not entry.used or entry.used > since)
        return {bytes.fromhex(entry.key): entry.site for entry in open_}

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
        holder = book.holders.get(site)
        others = {owner, "" if holder is None else holder.id} - {"", id}
        if others and not entry.again:
            raise IdentityError(
                f"the name {site!r} belongs to another key: if that key is lost, it needs "
                "a link from `fednode invite --again`"
            )
        other = next((one.name for one in book.holders.values() if one.id == id), site)
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


def _find(book: Book, site: str, id: str, waiting: bool) -> Entry:
    """Return the invitation of a site that is no member yet; raise ConfigError if there is none."""
    open_ = {
        name: entry
        for name, entry in book.entries.items()
        if not entry.used and id in {"", entry.id} and (entry.waiting or not waiting)
    }
    if site in open_:
        return open_[site]
    what = "waits" if waiting else "has an open invitation"
    rest = f"there {'waits' if waiting else 'is'}: {', '.join(open_) or 'none'}."
    raise ConfigError(f"No site {site!r} {what}; {meant(site, list(open_)) or rest}")
