"""The tokens of a register: rights to enrol, and the operator's approval of a key that knocked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fednode.admission.files import Files, Request, Token
from fednode.errors import ConfigError, IdentityError
from fednode.identity import lease as leases
from fednode.identity.lease import DAY_S
from fednode.settings.faults import meant

TOKEN_BYTES: Final = 24
LINK_TOKEN_BYTES: Final = 12
"""A link is short, and few guesses are answered."""
WANTED: Final = "wanted"
REQUESTS_MAX: Final = 64
REPLACED: Final = "replaced"
WITHDRAWN: Final = "withdrawn"
WHY_ENDED: Final = {
    REPLACED: "was replaced by a newer {what}: use the newer one",
    WITHDRAWN: "was ended by its sender: ask for a new one",
}
"""What a caller with an ended token is told."""
ENDED_MAX: Final = 64
"""Tokens that ended early and are still known, so that their owners learn the reason."""


class Knocked(IdentityError):
    """A key must be approved by the operator first."""


class StolenLink(IdentityError):
    """A second key shows the token of a link: one of the two has a copy."""


class Tokens:
    """The tokens in a register's files."""

    def __init__(self, files: Files, clock: Callable[[], float]) -> None:
        """Set up. clock: returns seconds since the epoch."""
        self._files, self._clock = files, clock

    def new(self, name: str = "", uses: int = 1) -> str:
        """Create and return a token for a name, or for any name."""
        text = secrets.token_urlsafe(TOKEN_BYTES)
        with self._files.alone():
            self._files.put_tokens([*self._files.tokens(), Token(digest_of(text), name, uses)])
        return text

    def for_link(self, name: str, days: float, again: bool = False, approve: bool = False) -> bytes:
        """Create and return the token of a link for a name; earlier links for it end.

        again: the link takes the name from the key that has it in the mesh. approve: a key that
        shows it only knocks, until the operator approves that key.
        """
        with self._files.alone():
            return self.add_link(name, days, again, approve)

    def add_link(self, name: str, days: float, again: bool, approve: bool) -> bytes:
        """Do what `for_link` does; the caller holds the lock.

        The key of a name is lost if the name is given again, so links that it used end, too. A
        name that was freed stays free, if a second link replaces the first one.
        """
        again = again or self.is_given_again(name)
        self.end(name, REPLACED, used=again)
        made, ends = secrets.token_bytes(LINK_TOKEN_BYTES), int(self._clock() + days * DAY_S)
        approval = WANTED if approve else ""
        token = Token(digest_of(made.hex()), name, 1, ends, "", again, approval)
        self._files.put_tokens([*self._files.tokens(), token])
        return made

    def end_links(self, name: str) -> int:
        """End the links for a name that nobody used yet; return how many there were."""
        with self._files.alone():
            return self.end(name, WITHDRAWN)

    def is_link_open(self) -> bool:
        """Tell whether a link can be used now that nobody used."""
        return any(map(self._is_open, self._files.tokens()))

    def is_given_again(self, name: str) -> bool:
        """Tell whether a link can be used now that takes a name from the key that has it."""
        return any(
            token.again and token.name == name and self._is_open(token)
            for token in self._files.tokens()
        )

    def _is_open(self, token: Token) -> bool:
        return not token.taken and not token.ended and self._clock() <= token.expires

    def end(self, name: str, why: str, used: bool = False) -> int:
        """End the tokens for a name; return how many there were. The caller holds the lock.

        why: a key of WHY_ENDED. used: end those that were used, too.
        """
        self._files.put_requests([one for one in self.requests() if one.name != name])
        held = self._files.tokens()
        ending = [token for token in held if token.name == name and (used or not token.taken)]
        ended = [token for token in held if token.ended]
        ended += [replace(token, ended=why) for token in ending if not token.ended]
        left = [token for token in held if not token.ended and token not in ending]
        self._files.put_tokens([*ended[-ENDED_MAX:], *left])
        return sum(not token.ended for token in ending)

    def fitting(self, token: str, name: str) -> Token | None:
        """Return the record of a token that is for a name, which may have ended, or None."""
        digest = digest_of(token)
        for candidate in self._files.tokens():
            if secrets.compare_digest(candidate.digest, digest) and candidate.name in {"", name}:
                return candidate
        return None

    def require(self, token: str, name: str, id: str) -> Token:
        """Return a token's record; raise IdentityError if it is not good for a name and a key."""
        if not token:
            raise IdentityError(
                "no token was given: ask for one (`fednode introducer token`) and set FEDNODE_TOKEN"
            )
        fitting = self.fitting(token, name)
        if fitting is None:
            raise IdentityError(
                f"the token is wrong, spent, or for another name than {name!r}: ask for a new one "
                "(`fednode invite`, or `fednode introducer token`)"
            )
        if fitting.ended:
            what = "link" if fitting.expires else "token"
            why = WHY_ENDED.get(fitting.ended, WHY_ENDED[WITHDRAWN]).format(what=what)
            raise IdentityError(f"the {what} for {name!r} {why}")
        if fitting.taken not in {"", id}:
            raise StolenLink(
                f"the link for {name!r} was used before, by another key: ask for a new link, and "
                "tell its sender, because somebody else may have a copy of this link"
            )
        if fitting.expires and self._clock() > fitting.expires:
            day = leases.day(fitting.expires)
            raise IdentityError(f"the link for {name!r} ended on {day}: ask for a new link")
        return fitting

    def spend(self, token: str, name: str, id: str, dry: bool) -> None:
        """Spend a use of a token; raise IdentityError if it is not good for a name and key.

        The token of a link is kept with the key that used it, so that another key is noticed.
        """
        spent = self.require(token, name, id)
        if dry:
            return
        rest = [other for other in self._files.tokens() if other != spent]
        if spent.expires:
            rest.append(replace(spent, uses=0, taken=id))
        elif spent.uses > 1:
            rest.append(replace(spent, uses=spent.uses - 1))
        self._files.put_tokens(rest)

    def require_approval(self, id: str, name: str, address: str, token: str, dry: bool) -> None:
        """Note a request and raise Knocked, if the operator has not approved the key yet."""
        fitting = self.require(token, name, id)
        if dry or fitting.approval in {"", id}:
            return
        held = self.requests()
        first = next((one.id for one in held if one.name == name), fitting.approval)
        if first not in {WANTED, id}:
            raise StolenLink(
                f"another key knocked with the link for {name!r} before: tell its sender"
            )
        rest = [one for one in held if one.id != id][1 - REQUESTS_MAX :]
        self._files.put_requests([*rest, Request(name, id, address)])
        raise Knocked(
            f"the operator has to approve the key of {name!r} first: wait for word, then run the "
            "same command again"
        )

    def requests(self) -> list[Request]:
        """Return the keys that knocked and were neither approved nor refused."""
        return self._files.requests()

    def settle(self, name: str, good: bool, id: str = "") -> Request:
        """Approve or refuse the key that knocked for a name; return its request.

        A refused link ends. Raise ConfigError if nobody knocked. id: the key that is meant.
        """
        with self._files.alone():
            held = self.requests()
            asked = next((one for one in held if one.name == name and id in {"", one.id}), None)
            if asked is None:
                names = [one.name for one in held]
                waiting = f"waiting: {', '.join(names) or 'none'}."
                raise ConfigError(f"No site waits as {name!r}; {meant(name, names) or waiting}")
            self._files.put_requests([one for one in held if one.name != name])
            if not good:
                self.end(name, WITHDRAWN)
                return asked
            self._files.put_tokens(
                [
                    replace(one, approval=asked.id) if one.name == name and one.approval else one
                    for one in self._files.tokens()
                ]
            )
            return asked


def digest_of(token: str) -> str:
    """Return the form in which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()
