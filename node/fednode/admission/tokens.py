"""The tokens of a register: rights to enrol, and the operator's approval of a key that knocked."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fednode.admission.files import Files, Request, Token
from fednode.errors import ConfigError, IdentityError
from fednode.identity.lease import DAY_S

TOKEN_BYTES: Final = 24
LINK_TOKEN_BYTES: Final = 12
"""A link is short, and few guesses are answered."""
WANTED: Final = "wanted"
REQUESTS_MAX: Final = 64


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
        made = secrets.token_bytes(LINK_TOKEN_BYTES)
        with self._files.alone():
            self._drop(name)
            ends = int(self._clock() + days * DAY_S)
            approval = WANTED if approve else ""
            token = Token(digest_of(made.hex()), name, 1, ends, "", again, approval)
            self._files.put_tokens([*self._files.tokens(), token])
        return made

    def end_links(self, name: str) -> int:
        """End the links for a name that nobody used yet; return how many there were."""
        with self._files.alone():
            return self._drop(name)

    def is_link_open(self) -> bool:
        """Tell whether a link can be used now that nobody used."""
        now = self._clock()
        return any(not token.taken and now <= token.expires for token in self._files.tokens())

    def _drop(self, name: str) -> int:
        self._files.put_requests([one for one in self.requests() if one.name != name])
        held = self._files.tokens()
        left = [token for token in held if token.name != name or token.taken]
        self._files.put_tokens(left)
        return len(held) - len(left)

    def end_used(self, name: str) -> None:
        """Forget the links for a name that were used, because its key was lost."""
        held = self._files.tokens()
        left = [token for token in held if not (token.taken and token.name == name)]
        self._files.put_tokens(left)

    def fitting(self, token: str, name: str) -> Token | None:
        """Return the record of a token that is good for a name; None if there is none."""
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
        if fitting.taken not in {"", id}:
            raise StolenLink(
                f"the link for {name!r} was used before, by another key: ask for a new link, and "
                "tell its sender, because somebody else may have a copy of this link"
            )
        if fitting.expires and self._clock() > fitting.expires:
            day = time.strftime("%Y-%m-%d", time.gmtime(fitting.expires))
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
        rest = [one for one in held if one.id != id][-REQUESTS_MAX:]
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
                names = ", ".join(one.name for one in held) or "nobody"
                raise ConfigError(f"Nobody knocks as {name!r}; {names} does.")
            self._files.put_requests([one for one in held if one.name != name])
            if not good:
                self._drop(name)
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
