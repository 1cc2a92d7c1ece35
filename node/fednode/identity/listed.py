"""Trust without keys: every node of peers.yaml is believed to be who it says it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fednode.core.types import Update
from fednode.errors import AddressError, IdentityError
from fednode.transports.address import parse


@dataclass(slots=True)
class Listed:
    """Trust without keys: every node of peers.yaml is believed to be who it says it is.

    For loopback only. A listed node may tell its own new address on loopback.
    """

    names: frozenset[str]
    _gone: frozenset[str] = frozenset()  # listed before

    def relist(self, listed: Mapping[str, str]) -> None:
        """Believe the nodes of another peers.yaml from now on."""
        self._gone = (self._gone | self.names) - frozenset(listed)
        self.names = frozenset(listed)

    def name_of(self, id: str) -> str:
        """Return "": nobody has an id."""
        return ""

    def id_of(self, name: str) -> str:
        """Return "": nobody has an id."""
        return ""

    def refusal(self, caller: str, sender: str) -> str:
        """Return "", unless the sender was listed before: a caller may send as any sender."""
        return f"{sender!r} is in peers.yaml no more" if sender in self._gone else ""

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
