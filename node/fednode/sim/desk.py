"""The settings documents of a simulated machine: what its disk holds, and what its operator does.

In a daemon, node/fednode/app/settling.py does this work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fednode.core.documents import NONE, Documents, order
from fednode.core.events import Decided
from fednode.core.types import Document

Decide = Callable[[Document], bool | None]
"""Return whether the operator accepts a document; None if it decides nothing."""


def ignore(_: Document) -> None:
    """Decide nothing."""


@dataclass(slots=True)
class Desk:
    """One machine's documents.

    force: the one under which the node runs. begins: the first round of a run under it is not
    durable yet. held: those that it knows. decided: by digest. decide: what the operator does with
    a new one. decide_s: virtual seconds until the operator has decided, and the node is prepared.
    """

    decide: Decide = ignore
    decide_s: float = 0.1
    force: Document = NONE
    begins: bool = False
    held: dict[str, Document] = field(default_factory=dict)
    decided: dict[str, bool] = field(default_factory=dict)

    def wipe(self) -> None:
        """Forget all that the disk holds."""
        self.force, self.begins, self.held, self.decided = NONE, False, {}, {}

    def copy(self) -> Desk:
        """Return a copy, for a backup."""
        return Desk(
            self.decide,
            self.decide_s,
            self.force,
            self.begins,
            dict(self.held),
            dict(self.decided),
        )

    def offered(self, document: Document) -> list[Decided]:
        """Keep a new document; return the operator's decision, if there is one."""
        self.held[document.digest] = document
        answer = self.decide(document)
        if answer is not None:
            self.decided.setdefault(document.digest, answer)
        return [one for one in self.again() if one.digest == document.digest]

    def again(self) -> list[Decided]:
        """Return the decisions that a node that starts is told once more."""
        newer = [digest for digest, one in self.held.items() if order(one) > order(self.force)]
        return [Decided(key, self.decided[key]) for key in sorted(newer) if key in self.decided]

    def documents(self) -> Documents:
        """Return what a kernel knows that starts; what was accepted is prepared before."""
        newer = {key: one for key, one in self.held.items() if order(one) > order(self.force)}
        accepted = {digest for digest, accepts in self.decided.items() if accepts} & set(newer)
        refused = (set(self.decided) & set(newer)) - accepted
        return Documents(self.force, newer, accepted=accepted, refused=refused)
