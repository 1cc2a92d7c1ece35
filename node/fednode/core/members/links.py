"""Links: the peers with which the policy exchanges prompts, by the topology.

They are live and active. A node that takes part in no round itself has no links (run.py).
"""

from __future__ import annotations

from fednode.core.members.table import Members
from fednode.core.members.topology import neighbours
from fednode.core.settings import TopologySettings


class Links:
    """The linked peers of one node."""

    def __init__(self, name: str, topology: TopologySettings) -> None:
        """Begin without links."""
        self._name, self._topology = name, topology
        self._linked: set[str] = set()

    def __contains__(self, peer: str) -> bool:
        """Tell whether a peer is linked."""
        return peer in self._linked

    @property
    def linked(self) -> list[str]:
        """The linked peers, sorted."""
        return sorted(self._linked)

    def follow(
        self, members: Members, moved: set[str], active: bool = True
    ) -> tuple[list[str], list[str]]:
        """Return the peers whose links end and begin, sorted.

        moved: the peers that came or went, or became active or inactive. In a full graph no other
        link changes. active: whether the node itself takes part in rounds.
        """
        if self._topology.kind == "full":
            ready = {peer for peer in moved if members[peer].live} - members.inactive
            wanted = ready if active else set()
            gone, fresh = (moved & self._linked) - wanted, wanted - self._linked
        else:
            live = members.active() if active else set()
            wanted = live & neighbours(self._name, live, self._topology)
            gone, fresh = self._linked - wanted, wanted - self._linked
        self._linked -= gone  # in place: a copy for each peer that comes costs N * N
        self._linked |= fresh
        return sorted(gone), sorted(fresh)
