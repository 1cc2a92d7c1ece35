"""What changes in the table of members when the operator changes peers.yaml."""

from __future__ import annotations

from typing import Final

from fednode.core.events import CancelTimer, Effect, Introduce, Relisted
from fednode.core.members.swim import SUSPECT, Swim

UNLISTED: Final = "peers.yaml does not list it any more"


def relisted(swim: Swim, now: float, event: Relisted) -> list[Effect]:
    """Greet new and moved peers, and go on without those that are gone.

    The file's address is used until the peer itself tells another one than before, or until nobody
    answers there (places.py).
    """
    members, effects = swim.members, list[Effect]()
    for name in event.gone:
        members.unlist(name, now, UNLISTED)
        if name in members:
            effects.append(CancelTimer(SUSPECT + name))
    for update in event.news:
        members.list(update.name)
    learned = swim.learn(now, event.news)
    moved = [one for one in event.news if one.address and one.name in members]
    # The file's addresses come after those that `learn` holds, and before the greetings.
    effects += [effect for effect in learned if isinstance(effect, Introduce)]
    effects += [swim.places.filed(one.name, one.address) for one in moved]
    return [*effects, *(effect for effect in learned if not isinstance(effect, Introduce))]
