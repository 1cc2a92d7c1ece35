"""What the page needs of a node's admission of newcomers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Site:
    """A member, or a key that wants to be one. words: of its key."""

    name: str
    address: str
    id: str
    words: str


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link for a site. words: of the mesh key."""

    site: str
    link: str
    words: str
    days: int
    approve: bool


class Admitting(Protocol):
    """What the page needs of the admission of newcomers; settle and invite raise FednodeError."""

    @property
    def open(self) -> bool:
        """Tell whether the node may admit sites now."""

    async def waiting(self) -> list[Site]:
        """Return the sites that wait for the operator."""

    async def members(self) -> list[Site]:
        """Return the members whose keys are known."""

    async def mesh_words(self) -> str:
        """Return the words of the mesh key."""

    async def invite(self, site: str, approve: bool) -> Invitation:
        """Make a link for a site."""

    async def settle(self, name: str, id: str, good: bool) -> str:
        """Admit or refuse a key that knocked for a name; return what happens next."""
