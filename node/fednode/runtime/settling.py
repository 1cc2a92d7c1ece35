"""What a driver needs to follow the mesh's settings documents; fednode.app.settling does it."""

from __future__ import annotations

from typing import Protocol

from fednode.core.types import Document
from fednode.runtime.worker import Learning


class Settling(Protocol):
    """Checks, keeps and prepares settings documents, and makes one the document in force."""

    def checked(self, proof: bytes) -> Document | None:
        """Return a document that a peer sent; None if it is not to be believed."""
        ...

    def offered(self, document: Document) -> None:
        """Store a document that this node did not know, tell people, and judge it by the rule."""
        ...

    def switch(self, document: Document) -> Learning:
        """Make a document the one in force, durably; return what to work with under it.

        It blocks. Raise FednodeError if the node cannot run under it; then nothing has changed.
        """
        ...

    def begun(self, document: Document) -> None:
        """Show people that a document is in force."""
        ...

    def committed(self) -> None:
        """Tie the state directory to the settings in force, if it is not; a commit went before.

        It blocks, and raises nothing.
        """
        ...
