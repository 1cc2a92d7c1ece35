"""What changes a mesh itself while faults happen: settings documents, newcomers, lists of members.

A scenario has some of these parts, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fednode.lab.simulate.documents import Proposals, require_settled, unsettled
from fednode.lab.simulate.listing import Listing
from fednode.lab.simulate.newcomers import Growth


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one run; None for those that its scenario does not have."""

    proposals: Proposals | None = None
    growth: Growth | None = None
    listing: Listing | None = None

    def begin(self) -> None:
        """Let newcomers come; lists change from the start on."""
        if self.growth is not None:
            self.growth.begin()

    def settle(self) -> None:
        """End, with all other faults, what kept a part of the mesh from what the rest has."""
        if self.proposals is not None:
            self.proposals.decide_again()
        if self.growth is not None:
            self.growth.settle()
        if self.listing is not None:
            self.listing.settle()

    def wrong(self, honest: Sequence[str]) -> str:
        """Return what does not hold yet of the honest nodes; "" if all does."""
        text = unsettled(self.proposals, honest)
        text = text or (self.growth.wrong(honest) if self.growth is not None else "")
        return text or (self.listing.wrong(honest) if self.listing is not None else "")

    def judge(self, honest: Sequence[str]) -> None:
        """Raise Violation if something does not hold."""
        require_settled(self.proposals, honest)
        if self.growth is not None:
            self.growth.judge(honest)
        if self.listing is not None:
            self.listing.judge(honest)
