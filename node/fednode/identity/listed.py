"""Trust without keys: every node of peers.yaml is believed to be who it says it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fednode.core.types import Update
from fednode.errors import AddressError, IdentityError
from fednode.transports.address import parse


@dataclass(slots=True)
class Listed:
    """Trust without keys: every node of peers.yaml is believed to be who it says it is.

    For loopback only. A listed node may tell its own address on loopback.
    """

    names: frozenset[str]

    def name_of(self, id: str) -> str:
        """Return "": nobody has an id."""
        return ""

    def id_of(self, name: str) -> str:
        """Return "": nobody has an id."""
        return ""

    def refusal(self, caller: str, sender: str) -> str:
        """Return "": a caller may send as any sender."""
        return ""

    def believed(self, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news of listed members, with addresses only from the members themselves."""
        return tuple(
            replace(
                update, address=update.address if _moved(update, sender) else "", id="", proof=b""
            )
            for update in news
            if update.name in self.names and update.state != "revoked"
        )

    def take_revocation(self, proof: bytes) -> Update:
        """Raise IdentityError: there are no keys."""
        raise IdentityError("this mesh knows nobody by keys (insecure: true), so none is revoked")

    def is_revoked(self, id: str) -> bool:
        """Return False: nobody has a key."""
        return False

    def admits(self, id: str, own: str = "") -> str:
        """Return "": nobody has a key."""
        return ""


def _moved(news: Update, sender: str) -> bool:
    """Tell whether news is of its sender itself, with an address on loopback."""
    try:
        return news.name == sender and parse(news.address).loopback
    except AddressError:
        return False
