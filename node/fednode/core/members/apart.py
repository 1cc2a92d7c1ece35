"""What a node takes from a member that it refuses, such as one that runs under other settings."""

from __future__ import annotations

from collections.abc import Iterable

from fednode.core.events import Effect, Introduce
from fednode.core.members.swim import Swim
from fednode.core.types import Update


def heard_apart(
    swim: Swim, now: float, news: Iterable[Update], sender: str, introduces: bool
) -> list[Effect]:
    """Apply news from a member that is refused: of revoked keys, and no more.

    introduces: it runs under other settings, so its own key and address count, too, and it may name
    members that this node does not know. Else members that share settings and know each other
    through such a member alone would never meet.
    """
    effects: list[Effect] = []
    for update in news:
        new = update.name not in swim.members and update.name != swim.own.name
        if update.state == "revoked" or (introduces and new):
            effects += swim.learn(now, [update], sender)
        elif introduces and update.name == sender and swim.members.place(update, sender):
            effects.append(Introduce(sender, swim.members[sender].address))
    return effects
