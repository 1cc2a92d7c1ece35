"""What a node tells about itself: its address, its incarnation, and whom it tells again."""

from __future__ import annotations

from typing import Final

from fednode.core.members.table import INCARNATION_MAX
from fednode.core.policy import NodeContext
from fednode.core.types import Message, Update

DOUBTED: Final = frozenset({"suspect", "dead", "left"})


class Own:
    """The news of one node about itself.

    A peer believes an address from the node that it belongs to, and from nobody else. A peer that
    cannot reach the node may know an address of an earlier start, so the node tells that peer its
    address with every ping, until the peer has answered.
    """

    def __init__(self, context: NodeContext) -> None:
        self.address = context.address
        self.incarnation = 0
        self.name, self._id, self._proof = context.name, context.id, context.proof
        self._untold: set[str] = set()

    @property
    def news(self) -> Update:
        """The news that others pass on."""
        return Update(self.name, "alive", self.incarnation, self.address, self._id, self._proof)

    def renew(self, proof: bytes) -> None:
        """Tell a new certificate from now on; with a higher incarnation it replaces the old one."""
        self._proof, self.incarnation = proof, self.incarnation + 1

    def missed(self, peer: str) -> None:
        """Note that a peer cannot reach this node: perhaps it calls the address of before."""
        self._untold.add(peer)

    def unknown_to(self, peer: str) -> bool:
        """Tell whether a peer may not know this node's address."""
        return peer in self._untold

    def told(self, peer: str, message: Message) -> None:
        """Note that a peer took a message."""
        if peer not in self._untold:
            return
        if any((one.name, one.address) == (self.name, self.address) for one in message.members):
            self._untold.discard(peer)

    def contradicts(self, news: Update) -> bool:
        """Take over an incarnation of an earlier life; tell whether a doubt is to be answered.

        The incarnation is above that of the doubt then.
        """
        if news.incarnation >= INCARNATION_MAX:
            return False
        if news.state not in DOUBTED:
            self.incarnation = max(self.incarnation, news.incarnation)
            return False
        if news.incarnation < self.incarnation:
            return False
        self.incarnation = news.incarnation + 1
        return True
