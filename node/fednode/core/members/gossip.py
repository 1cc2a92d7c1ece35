"""News of members that a node passes on: each item a few times, the least told items first."""

from __future__ import annotations

import math
from typing import Final

from fednode.core.members.table import Members
from fednode.core.types import Update

NEWS_MAX: Final = 12
"""Items of news on one message, besides the item about its receiver."""
TOLD_MULT: Final = 3
"""An item of news is told TOLD_MULT * log2(nodes + 1) times."""


class Gossip:
    """The news of one node, by the member that it is about."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._told: dict[str, tuple[int, Update]] = {}
        self._turn = 0

    def add(self, news: Update) -> None:
        """Tell an item from now on, in place of an older one about the same member."""
        self._told[news.name] = (0, news)

    def about(self, peer: str) -> list[Update]:
        """Return what is held of a member, if there is anything to tell.

        A member that refuses this node, or that this node refuses, is told of revoked keys, too: it
        takes no other news.
        """
        held = self._members[peer]
        news = held.update()
        revoked = self._revoked() if held.state == "refused" else []
        return [*([] if news is None else [news]), *revoked]

    def _revoked(self) -> list[Update]:
        """Return revocations, at most NEWS_MAX; the next ones in the next call."""
        known = [one.update() for one in self._members.view() if one.state == "revoked"]
        news = [one for one in known if one is not None]
        if len(news) <= NEWS_MAX:
            return news
        self._turn += 1
        at = self._turn * NEWS_MAX % len(news)
        return (news[at:] + news[:at])[:NEWS_MAX]

    def take(self, to: str) -> tuple[Update, ...]:
        """Return the news for a peer: what is held of that peer, then the least told items."""
        most = math.ceil(TOLD_MULT * math.log2(len(self._members) + 2))
        order = sorted(self._told, key=lambda name: (self._told[name][0], name))
        news = self.about(to)
        for name in [name for name in order if name != to][:NEWS_MAX]:
            times, update = self._told[name]
            news.append(update)
            self._told[name] = (times + 1, update)
            if times + 1 >= most:
                del self._told[name]
        return tuple(news)
