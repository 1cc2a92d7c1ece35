"""Who may send what: what a host asks, and the answers in a mesh without keys.

In a mesh with keys the roster answers (fednode.identity.roster).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from fednode.core.types import MemberUpdate
from fednode.errors import AddressError, IdentityError
from fednode.transports.address import parse


class MemberDirectory(Protocol):
    """The members of a mesh, as a host asks for them before it takes a message and its news.

    The defaults are those of a mesh without keys, where nobody has an id.
    """

    def name_of(self, id: str) -> str:
        """Return the name that an id has here; "" if it has none."""
        return ""

    def id_of(self, name: str) -> str:
        """Return the id that a name has here; "" if it has none."""
        return ""

    def check_sender(self, caller: str, sender: str) -> str:
        """Return why a caller may not send as `sender`; "" if it may."""
        return ""

    def check_member(self, id: str) -> str:
        """Return why a key does not belong to this mesh now; "" if it does."""
        return ""

    def filter_gossip(self, sender: str, news: Iterable[MemberUpdate]) -> tuple[MemberUpdate, ...]:
        """Return the news that `sender` may tell, without the parts that it may not."""
        ...

    def take_revocation(self, proof: bytes) -> MemberUpdate:
        """Store the operator's revocation, return it as news; raise IdentityError if invalid."""
        raise IdentityError("this mesh knows nobody by keys (insecure: true), so none is revoked")


@dataclass(slots=True)
class Listed(MemberDirectory):
    """The members of a mesh without keys: every node of peers.yaml is who it says it is.

    For loopback only. A listed node may tell its own address on loopback.
    """

    names: frozenset[str]

    def filter_gossip(self, sender: str, news: Iterable[MemberUpdate]) -> tuple[MemberUpdate, ...]:
        """Return the news of listed members, with addresses only from the members themselves."""
        return tuple(
            replace(
                update, address=update.address if _moved(update, sender) else "", id="", proof=b""
            )
            for update in news
            if update.name in self.names and update.state != "revoked"
        )


def _moved(news: MemberUpdate, sender: str) -> bool:
    """Tell whether news is of its sender itself, with an address on loopback."""
    try:
        return news.name == sender and parse(news.address).loopback
    except AddressError:
        return False
